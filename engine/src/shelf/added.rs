//! Places that the user added: searched a few levels deep for model folders and GGUF files. A cache of Hugging Face's or
//! Ollama's layout in such a place is read as one.
//!
//! Not here: which places these are (`places`).

use super::walk::Look;
use super::weights::{self, Found};
use super::{Listed, hugging_face, ollama};
use protocol::shelf::ShelfSource;
use std::path::Path;

/// Levels below a place that are searched: DISK/models/PUBLISHER/MODEL, and one more.
const DEPTH: u32 = 5;

/// Models of a place, each named by its way from there.
pub fn models(look: &mut Look, root: &Path) -> Vec<Listed> {
    let mut all = Vec::new();
    search(look, root, "", DEPTH, &mut all);
    all
}

fn search(look: &mut Look, folder: &Path, name: &str, depth: u32, all: &mut Vec<Listed>) {
    let add = |all: &mut Vec<Listed>, source, models: Vec<(String, Found)>| {
        all.extend(models.into_iter().map(|(name, found)| Listed { name, source, found }));
    };
    if hugging_face::name_of(folder).is_some() {
        return add(all, ShelfSource::HuggingFace, hugging_face::repository_models(look, folder));
    }
    if ollama::is_root(folder) {
        return add(all, ShelfSource::Ollama, ollama::models(look, folder));
    }
    let entries = look.list(folder);
    for found in weights::in_folder(folder, &entries, &weights::itself) {
        let own = folder.file_name().and_then(|own| own.to_str()).unwrap_or("model");
        let name = match &found.stem {
            Some(stem) => format!("{name}{stem}"),
            None if name.is_empty() => own.to_owned(),
            None => name.trim_end_matches('/').to_owned(),
        };
        all.push(Listed { name, source: ShelfSource::Added, found });
    }
    // What begins with a dot is a program's own.
    let folders = entries.iter().filter(|e| e.what == super::walk::What::Folder && !e.name.starts_with('.'));
    for below in folders.filter(|_| depth > 0) {
        search(look, &below.path, &format!("{name}{}/", below.name), depth - 1, all);
    }
}
