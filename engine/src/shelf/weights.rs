//! What in a folder is a model: `config.json` with all its safetensors files, and GGUF files. Names and sizes decide, and of
//! a GGUF file its magic number.
//!
//! Not here: whether the model can be used (`intake`), and links (the places say what may be followed).

use super::walk::{self, Entry, What};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A model in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The folder, or the (first) GGUF file.
    pub path: PathBuf,
    /// "safetensors", "gguf".
    pub format: &'static str,
    /// Bytes of weights.
    pub bytes: u64,
    /// Name of a GGUF file without its ending and part.
    pub stem: Option<String>,
}

/// The regular file that an entry stands for, or `None`: where links are not followed, a link stands for nothing.
pub type Stands<'a> = &'a dyn Fn(&Entry) -> Option<PathBuf>;

/// Only what lies there itself.
pub fn itself(entry: &Entry) -> Option<PathBuf> {
    (entry.what == What::File).then(|| entry.path.clone())
}

/// Models that lie in a folder itself, not below it.
pub fn in_folder(folder: &Path, entries: &[Entry], stands: Stands) -> Vec<Found> {
    let bytes = folder_bytes(entries, stands);
    let whole = bytes.map(|bytes| Found { path: folder.to_owned(), format: "safetensors", bytes, stem: None });
    whole.into_iter().chain(ggufs(entries, stands)).collect()
}

/// Bytes of the weights of a model folder; `None` where it is none or a part is missing.
pub fn folder_bytes(entries: &[Entry], stands: Stands) -> Option<u64> {
    entries.iter().find(|entry| entry.name == "config.json").and_then(stands)?;
    let weights: Vec<&Entry> = entries.iter().filter(|entry| entry.name.ends_with(".safetensors")).collect();
    let names: Vec<&str> = weights.iter().map(|entry| entry.name.as_str()).collect();
    if names.is_empty() || names.iter().any(|name| parts(name, &names).is_none()) {
        return None;
    }
    sum(weights.into_iter(), stands)
}

fn ggufs(entries: &[Entry], stands: Stands) -> Vec<Found> {
    let files: BTreeMap<&str, &Entry> =
        entries.iter().filter(|e| is_gguf_name(&e.name)).map(|e| (e.name.as_str(), e)).collect();
    let names: Vec<&str> = files.keys().copied().collect();
    let one = |name: &&str| {
        let all = parts(name, &names)?;
        if all.first() != Some(name) {
            return None;
        }
        let first = stands(files.get(name)?)?;
        let bytes = sum(all.iter().filter_map(|part| files.get(part).copied()), stands)?;
        let stem = stem(name).to_owned();
        walk::is_gguf(&first).then(|| Found { path: files[name].path.clone(), format: "gguf", bytes, stem: Some(stem) })
    };
    names.iter().filter_map(one).collect()
}

/// Weights of a language model by their name: what belongs to its eyes (mmproj) is none by itself.
pub fn is_gguf_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".gguf") && !name.contains("mmproj")
}

fn sum<'a>(mut entries: impl Iterator<Item = &'a Entry>, stands: Stands) -> Option<u64> {
    entries.try_fold(0u64, |sum, entry| {
        let bytes = stands(entry)?.symlink_metadata().ok()?.len();
        (bytes > 0).then(|| sum.saturating_add(bytes))
    })
}

/// The files of the set that a file belongs to, in order: itself where it is whole, `None` where a part is missing.
pub fn parts<'a>(name: &'a str, names: &[&'a str]) -> Option<Vec<&'a str>> {
    let Some((base, _, of)) = part(name) else { return Some(vec![name]) };
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    let same = |other: &&'a str| {
        let (its, number, its_of) = part(other)?;
        (its == base && its_of == of && other.rsplit_once('.').map(|(_, e)| e) == ending).then_some((number, *other))
    };
    let all: BTreeMap<u64, &str> = names.iter().filter_map(same).collect();
    let whole = all.len() as u64 == of && all.keys().all(|number| (1..=of).contains(number));
    whole.then(|| all.into_values().collect())
}

/// "model-00002-of-00003.safetensors" is part 2 of 3 of "model".
fn part(name: &str) -> Option<(&str, u64, u64)> {
    let (stem, _) = name.rsplit_once('.')?;
    let (rest, of) = stem.rsplit_once("-of-")?;
    let (base, number) = rest.rsplit_once('-')?;
    let count = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
    Some((base, count(number)?, count(of)?))
}

/// The name of a weight file without its ending and its part.
pub fn stem(name: &str) -> &str {
    part(name).map_or_else(|| name.rsplit_once('.').map_or(name, |(stem, _)| stem), |(base, ..)| base)
}

#[cfg(test)]
mod tests {
    use super::super::walk::Look;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, u64)> {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
        let entries = Look::with(99).list(folder.path());
        let all = in_folder(folder.path(), &entries, &itself);
        all.into_iter().map(|one| (one.stem.unwrap_or_else(|| one.format.to_owned()), one.bytes)).collect()
    }

    #[test]
    fn a_folder_is_a_model_when_every_part_is_there() {
        let (config, one, two) =
            (("config.json", "{}"), "m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors");
        assert_eq!(found(&[config, (one, "abc"), (two, "de")]), [("safetensors".to_owned(), 5)]);
        assert!(found(&[config, (one, "abc")]).is_empty(), "a part is missing");
        assert!(found(&[config, (one, "abc"), (two, "")]).is_empty(), "a part is empty");
        assert!(found(&[(one, "abc"), (two, "de")]).is_empty(), "there is no configuration");
        assert!(found(&[config]).is_empty());
        assert_eq!(found(&[config, ("model.safetensors", "abc")]), [("safetensors".to_owned(), 3)]);
    }

    #[test]
    fn each_quantisation_is_a_model_and_a_split_one_is_one() {
        let files = [
            ("m-Q4.gguf", "GGUF...."),
            ("m-Q8-00001-of-00002.gguf", "GGUF."),
            ("m-Q8-00002-of-00002.gguf", "GGUF"),
            ("m-Q2-00001-of-00003.gguf", "GGUF"),
            ("mmproj-m-f16.gguf", "GGUF"),
            ("text.gguf", "no such thing"),
        ];
        assert_eq!(found(&files), [("m-Q4".to_owned(), 8), ("m-Q8".to_owned(), 9)]);
    }

    #[test]
    fn odd_numbers_of_parts_make_no_set() {
        for name in
            ["m-1-of-0.gguf", "m-00009-of-00002.gguf", "m-1-of-99999999999999999999.gguf", "-of-.gguf", "m--of-1.gguf"]
        {
            let all = parts(name, &[name]);
            assert!(all.is_none() || all == Some(vec![name]), "{name}");
        }
        assert_eq!(parts("m-00001-of-00001.gguf", &["m-00001-of-00001.gguf"]).map(|p| p.len()), Some(1));
    }
}
