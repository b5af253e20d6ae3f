//! Looking into folders that strangers filled: a bounded number of entries, no link followed, nothing opened that is no
//! regular file.
//!
//! Not here: what an entry means (`weights` and the modules of the places).

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use store::disk::{Disk, RealDisk};

/// Entries of folders that are looked at in one place: a cache of five hundred models has some ten thousand, and this many
/// are listed within a second.
pub const ENTRIES: usize = 100_000;

/// What an entry is, without following it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A folder.
    Folder,
    /// A regular file.
    File,
    /// A symbolic link, to whatever it may be.
    Link,
    /// A pipe, socket or device.
    Special,
}

/// An entry of a folder. One whose name is no text is left out: no job could name it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The folder's path and its name.
    pub path: PathBuf,
    /// What it is.
    pub what: What,
}

/// How many entries may still be looked at.
#[derive(Debug)]
pub struct Look {
    left: usize,
}

impl Look {
    /// A look at this many entries.
    pub fn with(entries: usize) -> Look {
        Look { left: entries }
    }

    /// Entries of a folder by name, as far as they may still be looked at; none where it cannot be read.
    pub fn list(&mut self, folder: &Path) -> Vec<Entry> {
        let Ok(reading) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut entries = Vec::new();
        // A folder that cannot be read on says so again and again: its errors count as entries.
        for entry in reading.take(self.left) {
            self.left -= 1;
            let Ok(entry) = entry else { continue };
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else { continue };
            let what = match kind {
                _ if kind.is_dir() => What::Folder,
                _ if kind.is_file() => What::File,
                _ if kind.is_symlink() => What::Link,
                _ => What::Special,
            };
            entries.push(Entry { name, path: entry.path(), what });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries
    }

    /// Folders in a folder, by name; links to folders are none.
    pub fn folders(&mut self, folder: &Path) -> Vec<Entry> {
        let mut entries = self.list(folder);
        entries.retain(|entry| entry.what == What::Folder);
        entries
    }
}

/// The text of a small regular file; `None` where it is none, is larger, or is not UTF-8.
pub fn small_text(path: &Path, limit: u64) -> Option<String> {
    String::from_utf8(store::disk::read_whole(&RealDisk, path, limit).ok()?).ok()
}

/// True where a regular file begins with GGUF's magic number.
pub fn is_gguf(path: &Path) -> bool {
    let mut magic = [0; 4];
    RealDisk.open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok()) && &magic == b"GGUF"
}

/// Paths without links: a folder that bears two names is looked at once.
#[derive(Debug, Default)]
pub struct Seen(BTreeSet<PathBuf>);

impl Seen {
    /// True for a path that leads somewhere new.
    pub fn is_new(&mut self, path: &Path) -> bool {
        self.0.insert(path.canonicalize().unwrap_or_else(|_| path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_folder_is_looked_at_in_part() {
        let folder = tempfile::tempdir().unwrap();
        (0..50).for_each(|n| std::fs::write(folder.path().join(n.to_string()), "").unwrap());
        let mut look = Look::with(20);
        assert_eq!(look.list(folder.path()).len(), 20);
        assert!(look.list(folder.path()).is_empty(), "nothing may be looked at any more");
        assert!(Look::with(9).list(&folder.path().join("0")).is_empty(), "a file is no folder");
    }

    #[test]
    fn pipes_and_links_are_told_apart_and_never_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe.gguf");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        std::fs::write(folder.path().join("whole.gguf"), "GGUF\x03").unwrap();
        std::os::unix::fs::symlink("whole.gguf", folder.path().join("link.gguf")).unwrap();
        let kinds: Vec<What> = Look::with(9).list(folder.path()).into_iter().map(|entry| entry.what).collect();
        assert_eq!(kinds, [What::Link, What::Special, What::File]);
        assert!(is_gguf(&folder.path().join("whole.gguf")));
        assert!(!is_gguf(&pipe) && !is_gguf(&folder.path().join("link.gguf")));
        assert_eq!(small_text(&pipe, 9), None);
        assert_eq!(small_text(&folder.path().join("whole.gguf"), 4), None, "it is longer than that");
    }
}
