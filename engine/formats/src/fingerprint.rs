//! Hashes that name what went in: XXH3-128 as 32 hex digits.
//!
//! Not here: the hashes of checkpoint files, which `store` makes while it writes.

use crate::folder::{self, Folder};
use protocol::{Code, Outcome, Problem};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// Folders within folders; deeper ones are not data that anyone dropped on purpose.
const DEPTH: usize = 16;

/// Hash of one whole file.
pub fn file(path: &Path) -> Outcome<String> {
    let mut hash = Xxh3::new();
    add_file(&mut hash, path)?;
    Ok(hex(&hash))
}

/// Hash of files: each one's name (last part), length and contents, in the order given.
pub fn files(paths: &[PathBuf]) -> Outcome<String> {
    let mut hash = Xxh3::new();
    for path in paths {
        add_named(&mut hash, path.file_name().unwrap_or_default().as_bytes(), path)?;
    }
    Ok(hex(&hash))
}

/// Hash of a folder: names and contents of all regular files beneath it; links count by name, unfollowed.
pub fn folder(path: &Path) -> Outcome<String> {
    let mut hash = Xxh3::new();
    add_folder(&mut hash, path, DEPTH)?;
    Ok(hex(&hash))
}

/// Hash of bytes.
pub fn bytes(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

fn hex(hash: &Xxh3) -> String {
    format!("{:032x}", hash.digest128())
}

fn add_folder(hash: &mut Xxh3, path: &Path, depth: usize) -> Outcome<()> {
    if depth == 0 {
        return Err(Problem::new(Code::TooLarge, "the folder is nested too deeply").file(path));
    }
    for name in Folder::open(path)?.names()? {
        let entry = path.join(&name);
        let kind = std::fs::symlink_metadata(&entry).map_err(|e| Problem::io(&e, "reading the folder", &entry))?;
        if kind.is_dir() {
            add_part(hash, name.as_bytes());
            add_folder(hash, &entry, depth - 1)?;
        } else if kind.is_file() {
            add_named(hash, name.as_bytes(), &entry)?;
        } else {
            add_part(hash, name.as_bytes());
        }
    }
    Ok(())
}

fn add_named(hash: &mut Xxh3, name: &[u8], path: &Path) -> Outcome<()> {
    add_part(hash, name);
    let bytes = add_file(hash, path)?;
    hash.update(&bytes.to_le_bytes());
    Ok(())
}

/// A name with its length before it, so that no two lists of names run together.
fn add_part(hash: &mut Xxh3, part: &[u8]) {
    hash.update(&(part.len() as u64).to_le_bytes());
    hash.update(part);
}

fn add_file(hash: &mut Xxh3, path: &Path) -> Outcome<u64> {
    let mut file = folder::open(path)?;
    let mut buffer = vec![0u8; CHUNK];
    let mut total = 0;
    loop {
        let n = file.read(&mut buffer).map_err(|e| Problem::io(&e, "reading the file", path))?;
        if n == 0 {
            return Ok(total);
        }
        hash.update(&buffer[..n]);
        total += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_or_name_changes_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "hello").unwrap();
        let (one, all) = (file(&path).unwrap(), folder(dir.path()).unwrap());
        assert_eq!(one, bytes(b"hello"));
        assert_eq!(one.len(), 32);
        std::fs::write(&path, "hellp").unwrap();
        assert_ne!(file(&path).unwrap(), one);
        std::fs::rename(&path, dir.path().join("b")).unwrap();
        std::fs::write(dir.path().join("b"), "hello").unwrap();
        assert_ne!(folder(dir.path()).unwrap(), all);
    }

    #[test]
    fn two_files_do_not_run_together() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = ["x", "y"].iter().map(|n| dir.path().join(n)).collect();
        std::fs::write(&paths[0], "ab").unwrap();
        std::fs::write(&paths[1], "c").unwrap();
        let first = files(&paths).unwrap();
        std::fs::write(&paths[0], "a").unwrap();
        std::fs::write(&paths[1], "bc").unwrap();
        assert_ne!(files(&paths).unwrap(), first);
    }
}
