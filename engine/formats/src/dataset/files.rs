//! Which files a dropped path stands for.

use super::shown;
use crate::folder::Folder;
use protocol::facts::RowProblem;
use protocol::{Code, Outcome, Problem};
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Files of a data set, and what was left out of its folder.
pub(super) struct Listing {
    pub files: Vec<PathBuf>,
    pub skipped: Vec<RowProblem>,
}

/// Files that describe a data set and are none of it.
const DESCRIPTIONS: [&str; 3] = ["dataset_info.json", "dataset_infos.json", "SHA256SUMS"];
/// Files that `save_to_disk` leaves.
const SAVED: [&str; 2] = ["state.json", "dataset_dict.json"];

/// The files a path stands for: itself, or the data files of a folder in the order of their names. Errors: `NotSupported`
/// for a saved Arrow data set, `FormatUnknown` for a folder without data files.
pub fn files(path: &Path) -> Outcome<Vec<PathBuf>> {
    list(path).map(|listing| listing.files)
}

pub(super) fn list(path: &Path) -> Outcome<Listing> {
    let meta = std::fs::metadata(path).map_err(|e| Problem::io(&e, "opening the data", path))?;
    if !meta.is_dir() {
        return Ok(Listing { files: vec![path.to_owned()], skipped: Vec::new() });
    }
    let folder = Folder::open(path)?;
    if SAVED.iter().any(|name| folder.has(name)) {
        let what = "a data set saved as Arrow files comes with a later version";
        return Err(Problem::new(Code::NotSupported, what).file(path).remedy("export it as JSON lines (to_json)"));
    }
    let mut listing = Listing { files: Vec::new(), skipped: Vec::new() };
    for name in folder.names()? {
        let entry = path.join(&name);
        if is_description(name.as_bytes()) {
            continue;
        }
        let kind = std::fs::symlink_metadata(&entry).map_err(|e| Problem::io(&e, "looking at the folder", &entry))?;
        match left_out(kind.file_type()) {
            None => listing.files.push(entry),
            Some((code, why)) => {
                let message = format!("{} was left out: {why}", shown(&entry));
                listing.skipped.push(RowProblem::of_entry(code, message));
            }
        }
    }
    if listing.files.is_empty() {
        let why: Vec<String> = listing.skipped.iter().take(3).map(|s| s.message.clone()).collect();
        return Err(Problem::new(Code::FormatUnknown, "the folder has no data files").why(why.join("; ")).file(path));
    }
    Ok(listing)
}

/// Names of splits among the files: train, test, validation.
pub(super) fn splits(paths: &[PathBuf]) -> Vec<String> {
    let known = ["train", "test", "validation", "valid", "dev", "eval"];
    let stem = |p: &PathBuf| p.file_stem().and_then(|s| s.to_str()).map(str::to_ascii_lowercase);
    paths.iter().filter_map(stem).filter(|s| known.contains(&s.as_str())).collect()
}

fn is_description(name: &[u8]) -> bool {
    let upper = name.to_ascii_uppercase();
    let text = [b"README".as_slice(), b"LICENSE", b"LICENCE", b"NOTICE"].iter().any(|n| upper.starts_with(n));
    name.starts_with(b".") || text || upper.ends_with(b".MD") || DESCRIPTIONS.iter().any(|d| d.as_bytes() == name)
}

fn left_out(kind: FileType) -> Option<(Code, &'static str)> {
    if kind.is_file() {
        None
    } else if kind.is_symlink() {
        Some((Code::PathOutside, "it is a link, and links in a folder are not followed"))
    } else if kind.is_dir() {
        Some((Code::NotSupported, "folders within a folder come with a later version"))
    } else {
        Some((Code::FormatUnknown, "it is a device, pipe or socket"))
    }
}
