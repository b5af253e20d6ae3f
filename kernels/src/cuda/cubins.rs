//! Compiled kernels on disk. A damaged entry counts as none, and a folder that cannot be written to is no error.

use super::folders;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_128;

/// What an entry begins with; the checksum of the rest follows.
const MAGIC: &[u8; 16] = b"anneal cubin v1\n";

/// The binary of this key.
pub(super) fn get(key: u128) -> Option<Vec<u8>> {
    get_in(&folders::cache()?, key)
}

/// Keeps a binary.
pub(super) fn put(key: u128, binary: &[u8]) {
    if let Some(folder) = folders::cache() {
        // Compiling again next time is all that is lost.
        let _ = put_in(&folder, key, binary);
    }
}

fn file(folder: &Path, key: u128) -> PathBuf {
    folder.join(format!("{key:032x}.cubin"))
}

fn get_in(folder: &Path, key: u128) -> Option<Vec<u8>> {
    let entry = std::fs::read(file(folder, key)).ok()?;
    let rest = entry.strip_prefix(MAGIC)?;
    let (sum, binary) = rest.split_at_checked(16)?;
    (sum == xxh3_128(binary).to_le_bytes()).then(|| binary.to_vec())
}

fn put_in(folder: &Path, key: u128, binary: &[u8]) -> std::io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(folder)?;
    let unique = format!(".{key:032x}.{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let new = folder.join(unique);
    let entry = [&MAGIC[..], &xxh3_128(binary).to_le_bytes(), binary].concat();
    let written = std::fs::write(&new, entry).and_then(|()| std::fs::rename(&new, file(folder, key)));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kernels-cubins-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn an_entry_comes_back_and_a_damaged_one_does_not() {
        let folder = folder("entry");
        put_in(&folder, 7, b"binary").unwrap();
        assert_eq!(get_in(&folder, 7).as_deref(), Some(&b"binary"[..]));
        assert_eq!(get_in(&folder, 8), None);
        let whole = std::fs::read(file(&folder, 7)).unwrap();
        for len in 0..whole.len() {
            std::fs::write(file(&folder, 7), &whole[..len]).unwrap();
            assert_eq!(get_in(&folder, 7), None, "cut to {len}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 4;
            std::fs::write(file(&folder, 7), flipped).unwrap();
            assert_eq!(get_in(&folder, 7), None, "flipped at {at}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_an_error_that_nobody_sees() {
        assert!(put_in(Path::new("/proc/kernels"), 7, b"binary").is_err());
        assert_eq!(get_in(Path::new("/proc/kernels"), 7), None);
    }
}
