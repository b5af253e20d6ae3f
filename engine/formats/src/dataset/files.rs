//! Which files a dropped path stands for, and which split each belongs to.
//!
//! Not here: what is in a file (`sniff`).

use crate::folder::Folder;
use protocol::facts::RowProblem;
use protocol::{Code, Outcome, Problem, limits};
use serde::Deserialize;
use std::ffi::OsStr;
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A file of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFile {
    /// Where it is.
    pub path: PathBuf,
    /// The split it belongs to by its name or its folder's: "train", "validation", "test"; None where neither says.
    pub split: Option<&'static str>,
}

/// Files of a data set, and what was left out of its folder.
#[derive(Debug)]
pub(super) struct Listing {
    pub files: Vec<DataFile>,
    pub skipped: Vec<RowProblem>,
}

/// Files that describe a data set and are none of it.
const DESCRIPTIONS: [&str; 6] =
    ["dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "SHA256SUMS", "MD5SUMS"];
/// What `save_to_disk` writes beside the tables of a data set.
const STATE: &str = "state.json";
/// What it writes above the folders of several.
const DICT: &str = "dataset_dict.json";

/// The files a path stands for: itself, or the data files of a folder and its folders in the order of their names; of a
/// saved data set those it names, in its order. Errors: `FormatUnknown` for a folder without data files, `FileMalformed`
/// for a saved data set whose description is broken, `TooLarge` for a folder of more than `limits::FOLDER_ENTRIES`.
pub fn files(path: &Path) -> Outcome<Vec<PathBuf>> {
    list(path).map(|listing| listing.files.into_iter().map(|file| file.path).collect())
}

pub(super) fn list(path: &Path) -> Outcome<Listing> {
    let meta = std::fs::metadata(path).map_err(|e| Problem::io(&e, "opening the data", path))?;
    if !meta.is_dir() {
        let file = DataFile { path: path.to_owned(), split: path.file_stem().and_then(split_of) };
        return Ok(Listing { files: vec![file], skipped: Vec::new() });
    }
    let mut walk =
        Walk { listing: Listing { files: Vec::new(), skipped: Vec::new() }, entries: 0, root: path.to_owned() };
    walk.folder(path, None, 0)?;
    let listing = walk.listing;
    if listing.files.is_empty() {
        let why: Vec<String> = listing.skipped.iter().take(3).map(|s| s.message.clone()).collect();
        return Err(Problem::new(Code::FormatUnknown, "the folder has no data files").why(why.join("; ")).file(path));
    }
    Ok(listing)
}

/// Those of the files that are trained on: where a split is named so, no other.
pub(super) fn trained(files: &[DataFile]) -> Vec<DataFile> {
    let is_train = |file: &&DataFile| file.split == Some("train");
    let named: Vec<DataFile> = files.iter().filter(is_train).cloned().collect();
    if named.is_empty() { files.to_vec() } else { named }
}

/// Names of the splits of files, each once.
pub(super) fn splits<'a>(files: impl Iterator<Item = &'a DataFile>) -> Vec<String> {
    let mut splits: Vec<String> = Vec::new();
    for split in files.filter_map(|file| file.split) {
        if !splits.iter().any(|s| s == split) {
            splits.push(split.to_owned());
        }
    }
    splits
}

/// The split that a name speaks of: as a word at its beginning or end ("train-00000-of-00002", "my_test").
fn split_of(name: &OsStr) -> Option<&'static str> {
    let name = name.to_str()?.to_ascii_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    let known = |word: &str| match word {
        "train" | "training" => Some("train"),
        "validation" | "valid" | "val" | "dev" | "eval" => Some("validation"),
        "test" => Some("test"),
        _ => None,
    };
    let counted = words.iter().position(|w| w.bytes().all(|b| b.is_ascii_digit())).unwrap_or(words.len());
    let (first, last) = (words.first()?, words[..counted].last());
    known(first).or_else(|| last.and_then(|word| known(word)))
}

struct Walk {
    listing: Listing,
    entries: usize,
    root: PathBuf,
}

impl Walk {
    fn folder(&mut self, path: &Path, split: Option<&'static str>, depth: usize) -> Outcome<()> {
        let folder = Folder::open(path)?;
        if folder.has(STATE) && self.saved(&folder, split)? {
            return Ok(());
        }
        let names = match folder.has(DICT) {
            true => splits_of_dict(&folder)?,
            false => folder.names()?,
        };
        for name in names {
            self.entries += 1;
            if self.entries > limits::FOLDER_ENTRIES {
                let what = format!("the folder and its folders have more than {} entries", limits::FOLDER_ENTRIES);
                return Err(Problem::new(Code::TooLarge, what).file(&self.root));
            }
            if !is_description(name.as_bytes()) {
                self.entry(path.join(&name), split, depth)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: PathBuf, split: Option<&'static str>, depth: usize) -> Outcome<()> {
        let kind = std::fs::symlink_metadata(&path).map_err(|e| Problem::io(&e, "looking at the folder", &path))?;
        let kind = kind.file_type();
        if kind.is_dir() && depth < limits::FOLDER_DEPTH {
            let own = path.file_name().and_then(split_of);
            return self.folder(&path, own.or(split), depth + 1);
        }
        match left_out(kind) {
            None => {
                let split = path.file_stem().and_then(split_of).or(split);
                self.listing.files.push(DataFile { path, split });
            }
            Some((code, why)) => self.skip(&path, code, why),
        }
        Ok(())
    }

    fn skip(&mut self, path: &Path, code: Code, why: &str) {
        let name = path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().escape_debug().to_string();
        let message = format!("{name} was left out: {why}");
        self.listing.skipped.push(RowProblem::of_entry(code, message));
    }

    /// The tables of a saved data set; false where the description speaks of none.
    fn saved(&mut self, folder: &Folder, split: Option<&'static str>) -> Outcome<bool> {
        #[derive(Deserialize)]
        struct Table {
            filename: String,
        }
        #[derive(Deserialize)]
        struct State {
            _data_files: Option<Vec<Table>>,
            _indices_files: Option<Vec<Table>>,
            _split: Option<String>,
        }
        let path = folder.path().join(STATE);
        let state: State = serde_json::from_slice(&folder.read(STATE, limits::CONFIG_BYTES)?).map_err(|e| {
            Problem::new(Code::FileMalformed, "the description of the saved data set cannot be read")
                .why(e.to_string())
                .file(&path)
        })?;
        let Some(tables) = state._data_files.filter(|tables| !tables.is_empty()) else { return Ok(false) };
        if state._indices_files.is_some_and(|files| !files.is_empty()) {
            let what = "the saved data set is a selection of rows by an index of its own, which is not read";
            let remedy = "save it again after flatten_indices()";
            return Err(Problem::new(Code::NotSupported, what).file(&path).remedy(remedy));
        }
        let split = state._split.as_deref().and_then(|name| split_of(OsStr::new(name))).or(split);
        for table in tables {
            let plain = Path::new(&table.filename).components().all(|part| matches!(part, Component::Normal(_)));
            if !plain {
                let what = format!("the saved data set names a file outside of it: {}", table.filename.escape_debug());
                return Err(Problem::new(Code::PathOutside, what).file(&path));
            }
            // Opened for what it refuses: a link that leads out, a file that is not there.
            folder.file(&table.filename)?;
            self.listing.files.push(DataFile { path: folder.path().join(&table.filename), split });
        }
        Ok(true)
    }
}

/// The folders of the splits of a saved data set.
fn splits_of_dict(folder: &Folder) -> Outcome<Vec<std::ffi::OsString>> {
    #[derive(Deserialize)]
    struct Dict {
        splits: Vec<String>,
    }
    let path = folder.path().join(DICT);
    let dict: Dict = serde_json::from_slice(&folder.read(DICT, limits::CONFIG_BYTES)?).map_err(|e| {
        let what = "the description of the saved data set cannot be read";
        Problem::new(Code::FileMalformed, what).why(e.to_string()).file(&path)
    })?;
    for split in &dict.splits {
        if split.contains('/') || split == ".." || split == "." || !folder.has(split) {
            let what = format!("the saved data set names a split that is not there: {}", split.escape_debug());
            return Err(Problem::new(Code::FileUnreadable, what).file(&path).remedy("copy its folder too"));
        }
    }
    Ok(dict.splits.into_iter().map(Into::into).collect())
}

fn is_description(name: &[u8]) -> bool {
    let upper = name.to_ascii_uppercase();
    let texts = [b"README".as_slice(), b"LICENSE", b"LICENCE", b"NOTICE", b"CITATION", b"CHANGELOG"];
    let text = texts.iter().any(|n| upper.starts_with(n));
    name.starts_with(b".") || text || upper.ends_with(b".MD") || DESCRIPTIONS.iter().any(|d| d.as_bytes() == name)
}

fn left_out(kind: FileType) -> Option<(Code, &'static str)> {
    if kind.is_file() {
        None
    } else if kind.is_symlink() {
        Some((Code::PathOutside, "it is a link, and links in a folder are not followed"))
    } else if kind.is_dir() {
        Some((Code::TooLarge, "it lies in too many folders within folders"))
    } else {
        Some((Code::FormatUnknown, "it is a device, pipe or socket"))
    }
}
