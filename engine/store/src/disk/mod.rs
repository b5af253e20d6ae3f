//! The few calls that durability rests on, behind one trait, so that the very code that writes checkpoints also runs on a
//! disk that loses power or fails at any call.
//!
//! [`RealDisk`] is the file system. [`SimulatedDisk`] models what is pending and what is durable.
//! Not here: free space as such (`space`), the journal's appending writes (`journal`).

mod real;
mod simulated;

pub use real::RealDisk;
pub(crate) use real::regular;
pub use simulated::{Fault, SimulatedDisk};

use protocol::{Code, Outcome, Problem};
use std::io::{self, Read, Write};
use std::path::Path;

/// Largest nesting of folders that [`remove_tree`] goes into: our own trees have 2, a hostile one ends here.
const TREE_DEPTH: u32 = 16;

/// A folder's entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Name; entries whose name is not UTF-8 are never ours and are left out.
    pub name: String,
    /// True for a folder, false for all else (a link to a folder is no folder).
    pub folder: bool,
}

/// A file being written.
pub trait Output: Write + Send {
    /// fsync. After a failure the written bytes count as lost: the kernel may have dropped them and report success next
    /// time, so a caller writes a new file instead of trying again.
    fn sync(&mut self) -> io::Result<()>;
}

/// A disk. All paths are complete; nothing follows a link in the last component.
pub trait Disk: Send + Sync {
    /// Makes a folder with mode 0700; its parent exists, the name is free.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes a file with mode 0600 to write; the name is free.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// Opens a regular file to read; links and special files are refused.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;
    /// Size of a regular file in bytes; links and special files are refused.
    fn size(&self, path: &Path) -> io::Result<u64>;
    /// Entries of a folder, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<Listed>>;
    /// Renames; never replaces what bears the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames a file over another one, in one step.
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// fsync of a folder: its entries are durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// Removes a file or a link.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Bytes that can still be written where `path` lies.
    fn free(&self, path: &Path) -> io::Result<u64>;
}

/// Writes a whole small file in one step: either the old content stays or the new one is durable.
/// Errors: `DiskFull`, `DiskFailed`; the old content is kept.
pub fn write_whole(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Outcome<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temp = parent.join(format!(".tmp-{name}"));
    let _ = disk.remove_file(&temp);
    let written =
        write_new(disk, &temp, bytes).and_then(|()| disk.replace(&temp, path)).and_then(|()| disk.sync_folder(parent));
    written.map_err(|error| {
        let _ = disk.remove_file(&temp);
        failed(disk, &error, "writing a file", path, bytes.len() as u64).kept("the file as it was before")
    })
}

/// Writes a new file and makes its content durable (its name is durable once its folder is).
pub fn write_new(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = disk.create(path)?;
    file.write_all(bytes)?;
    file.sync()
}

/// Reads a whole small file.
/// Errors: `FileUnreadable`, `DiskFailed`, `TooLarge` above `limit` bytes, which is checked before anything is read.
pub fn read_whole(disk: &dyn Disk, path: &Path, limit: u64) -> Outcome<Vec<u8>> {
    let unreadable = |error: io::Error| Problem::io(&error, "reading a file", path);
    let size = disk.size(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    if size <= limit {
        disk.open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    }
    if size > limit || bytes.len() as u64 > limit {
        let what = format!("the file is larger than the {limit} bytes that are read of its kind");
        return Err(Problem::new(Code::TooLarge, what).file(path));
    }
    Ok(bytes)
}

/// Removes a folder and what is in it; goes on past failures, so that as much room as possible is freed, and reports
/// the first one. What is already gone is no failure.
pub fn remove_tree(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    remove_below(disk, path, TREE_DEPTH)
}

fn remove_below(disk: &dyn Disk, path: &Path, depth: u32) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other("folders are nested too deeply"));
    }
    let entries = match disk.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    let mut first = Ok(());
    for entry in entries {
        let inner = path.join(&entry.name);
        let removed = if entry.folder { remove_below(disk, &inner, depth - 1) } else { disk.remove_file(&inner) };
        first = first.and(absent_is_fine(removed));
    }
    first.and(absent_is_fine(disk.remove_folder(path)))
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// The problem of a failed write, with the bytes it needed and the bytes that are free.
pub(crate) fn failed(disk: &dyn Disk, error: &io::Error, doing: &str, path: &Path, needed: u64) -> Problem {
    let problem = Problem::io(error, doing, path);
    let at = path.parent().unwrap_or(path);
    let why = match (problem.code, disk.free(at)) {
        (Code::DiskFull, Ok(free)) => format!("{error}: {needed} bytes are needed and {free} bytes are free"),
        (Code::DiskFull, Err(_)) => format!("{error}: {needed} bytes are needed"),
        _ => error.to_string(),
    };
    problem.why(why)
}
