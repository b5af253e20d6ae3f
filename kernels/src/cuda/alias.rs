//! A second name for a library: a shared object of some hundred bytes with a name of our choice that needs the real one.
//!
//! The bindings ask the loader for `libnccl.so` and the like, and know no paths; what is installed may be called
//! `libnccl.so.2` and lie in a folder that the loader does not search. The loader takes an object that is already loaded
//! when its SONAME is the name asked for, and looks symbols up in what that object needs as well. So an object with this
//! SONAME, and the full path of the real library as what it needs, answers for it. It has no code: the file is written,
//! loaded and removed, and works where a folder allows no programs.

use std::path::{Path, PathBuf};

/// Bytes of the ELF header, of a program header, of a symbol, of a dynamic entry.
const HEADER: u64 = 64;
const SEGMENT: u64 = 56;
const SYMBOL: u64 = 24;
const ENTRY: u64 = 16;

/// Loads a second name for `library` and keeps it for the life of the process.
///
/// # Errors
/// Where no folder can be written to, or the loader refuses: its words.
pub(super) fn load(name: &str, library: &Path, folders: &[PathBuf]) -> Result<libloading::os::unix::Library, String> {
    let bytes = object(name, &library.to_string_lossy());
    let mut last = String::from("no folder to write to");
    for folder in folders {
        let file = folder.join(format!(".anneal-{}-{name}", std::process::id()));
        match write(folder, &file, &bytes) {
            Ok(()) => {}
            Err(error) => {
                last = format!("{}: {error}", file.display());
                continue;
            }
        }
        // SAFETY: the object has no code of its own; what it needs was loaded before.
        let loaded = unsafe { libloading::os::unix::Library::open(Some(&file), libloading::os::unix::RTLD_LAZY) };
        // Loaded or not, its name on disk has done its work. Its pages stay.
        let _ = std::fs::remove_file(&file);
        match loaded {
            Ok(loaded) => return Ok(loaded),
            Err(error) => last = super::libraries::words(&error),
        }
    }
    Err(last)
}

/// Writes a file that was not there before: in a folder that others may write to, nobody can have put one in its place.
fn write(folder: &Path, file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let _ = std::fs::remove_file(file);
    std::io::Write::write_all(&mut std::fs::OpenOptions::new().write(true).create_new(true).open(file)?, bytes)
}

/// The shared object: header, two program headers, dynamic section, one empty symbol, its hash table, strings.
fn object(name: &str, needed: &str) -> Vec<u8> {
    let strings = [&[0], name.as_bytes(), &[0], needed.as_bytes(), &[0]].concat();
    let (name_at, needed_at) = (1, name.len() as u64 + 2);
    let dynamic_at = HEADER + 2 * SEGMENT;
    let symbols_at = dynamic_at + 8 * ENTRY;
    let hash_at = symbols_at + SYMBOL;
    let strings_at = hash_at + 20;
    let len = strings_at + strings.len() as u64;
    // DT_SONAME, DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL.
    let dynamic = [
        [14, name_at],
        [1, needed_at],
        [4, hash_at],
        [5, strings_at],
        [6, symbols_at],
        [10, strings.len() as u64],
        [11, SYMBOL],
        [0, 0],
    ];
    let mut bytes = header();
    // PT_LOAD and PT_DYNAMIC, readable and writable: the loader relocates the dynamic section in place.
    bytes.extend(segment(1, 0, len, 0x1000));
    bytes.extend(segment(2, dynamic_at, 8 * ENTRY, 8));
    bytes.extend(dynamic.iter().flatten().flat_map(|word| word.to_le_bytes()));
    bytes.extend([0; SYMBOL as usize]);
    // One bucket, one chain entry, both empty.
    bytes.extend([1u32, 1, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend(strings);
    bytes
}

/// 64 bits, little-endian, a shared object of this machine without sections.
fn header() -> Vec<u8> {
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    [3u16, machine].iter().for_each(|half| bytes.extend(half.to_le_bytes()));
    bytes.extend(1u32.to_le_bytes());
    // No entry point; program headers follow; no section headers.
    [0u64, HEADER, 0].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(0u32.to_le_bytes());
    [HEADER as u16, SEGMENT as u16, 2, 64, 0, 0].iter().for_each(|half| bytes.extend(half.to_le_bytes()));
    bytes
}

fn segment(kind: u32, at: u64, len: u64, align: u64) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), 6u32.to_le_bytes()].concat();
    [at, at, at, len, len, align].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes
}
