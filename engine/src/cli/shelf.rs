//! Models on this machine, and what became of one, in words.

use super::show::{one_line, size};
use protocol::shelf::{How, Shelf, ShelfSource, Taken};
use std::fmt::Write;

/// A line a model, and below them where was looked.
pub fn shelf(shelf: &Shelf) -> String {
    let mut text = String::new();
    let names: Vec<String> = shelf.models.iter().map(|model| one_line(&model.name)).collect();
    let wide = names.iter().map(|name| name.chars().count()).max().unwrap_or_default().clamp(4, 48);
    match names.is_empty() {
        true => text.push_str("no models yet; look in a folder of yours with: anneal models --add DIR\n"),
        false => {
            let _ = writeln!(text, "{:<wide$}  {:<11}  {:>9}  {:<12}  path", "name", "format", "size", "whose");
        }
    }
    for (model, name) in shelf.models.iter().zip(&names) {
        let (format, bytes, whose, path) =
            (&model.format, size(model.bytes), whose(model.source), one_line(&model.path));
        let _ = writeln!(text, "{name:<wide$}  {format:<11}  {bytes:>9}  {whose:<12}  {path}");
    }
    text.push('\n');
    for place in &shelf.places {
        let found = match (place.there, place.models) {
            (false, _) => "not there".to_owned(),
            (true, 1) => "1 model".to_owned(),
            (true, n) => format!("{n} models"),
        };
        let _ = writeln!(text, "{:<12}  {found:<11}  {}", whose(place.source), one_line(&place.path));
    }
    text
}

fn whose(source: ShelfSource) -> &'static str {
    match source {
        ShelfSource::HuggingFace => "Hugging Face",
        ShelfSource::LmStudio => "LM Studio",
        ShelfSource::Ollama => "Ollama",
        ShelfSource::Added => "added",
    }
}

/// What was taken where, or would be.
pub fn taken(taken: &Taken) -> String {
    let (is, would_be) = match taken.how {
        How::Copy => ("copied", "would be copied"),
        How::Link => ("linked", "would be linked"),
        How::Move => ("moved", "would be moved"),
    };
    let word = if taken.dry_run { would_be } else { is };
    let files = if taken.files.len() == 1 { "1 file".to_owned() } else { format!("{} files", taken.files.len()) };
    let to = one_line(&taken.to);
    let mut text = format!("{files}, {} {word} to {to} ({} free there)\n", size(taken.bytes), size(taken.free));
    if taken.dry_run {
        taken.files.iter().for_each(|(from, to)| {
            let _ = writeln!(text, "  {} -> {}", one_line(from), one_line(to));
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::shelf::{ShelfModel, ShelfPlace};

    #[test]
    fn a_name_cannot_break_the_table() {
        let model = ShelfModel {
            name: "a\nb\u{1b}[2J".into(),
            path: "/p/a\nb".into(),
            source: ShelfSource::Added,
            bytes: 1536,
            format: "gguf".into(),
        };
        let place = ShelfPlace { path: "/p".into(), source: ShelfSource::Added, there: true, models: 1 };
        let text = shelf(&Shelf { models: vec![model], places: vec![place] });
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("1.50 KB") && text.contains("1 model"), "{text}");
        assert!(shelf(&Shelf::default()).contains("--add"));
    }

    #[test]
    fn what_would_be_done_is_told_file_by_file() {
        let mut told = Taken {
            to: "/t/m".into(),
            how: How::Move,
            files: vec![("/a/m".into(), "/t/m".into())],
            bytes: 5,
            free: 9,
            dry_run: true,
        };
        assert!(taken(&told).contains("would be moved") && taken(&told).contains("/a/m -> /t/m"));
        told.dry_run = false;
        assert_eq!(taken(&told), "1 file, 5 B moved to /t/m (9 B free there)\n");
    }
}
