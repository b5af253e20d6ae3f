//! Carrying files into a new folder or under a new name, so that what is made appears whole and durable, or not at all.
//!
//! Everything is made in a folder of its own beside the target, under a lock; what a kill left there is removed by whoever
//! makes the same the next time. Not here: whether there is room, and what becomes of the old files (the module above).

use super::source::{Part, Source, Status};
use protocol::problem::{Code, Outcome, Problem};
use rustix::fs::{Advice, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use store::disk::{Disk, RealDisk};
use xxhash_rust::xxh3::Xxh3;

/// Bytes copied at once: full disk speed, and a few steps of progress a second.
const PIECE: usize = 4 << 20;
/// Before the name of a folder in which something is being made.
const MARK: &str = ".tmp-anneal-";

/// How files are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Copied; read again and compared where the old ones are to go.
    Copy {
        /// Compare.
        verify: bool,
    },
    /// A second name for the same bytes.
    Link,
}

/// Told bytes done and in all; an error of its ends the carrying.
pub type Going<'a> = &'a mut dyn FnMut(u64, u64) -> Outcome<()>;

/// Carries the files of a model to `target`, which is free. On an error nothing of it is left.
/// Errors: `WrongState` where the target came to be meanwhile, `Busy`, `ModelChanged`, disk problems, those of `going`.
pub fn carry(source: &Source, target: &Path, how: Carry, going: Going) -> Outcome<()> {
    let making = Making::begin(target)?;
    let (mut done, total) = (0, source.bytes());
    for part in &source.parts {
        let to = making.path.join(&part.name);
        match how {
            Carry::Link => link(part, &to)?,
            Carry::Copy { verify } => copy(part, &to, verify, &mut |bytes| {
                done += bytes;
                going(done, total)
            })?,
        }
    }
    making.finish(source, target)
}

/// A folder in which something is made; removed when it is dropped before the end.
struct Making {
    path: PathBuf,
    _held: OwnedFd,
}

impl Making {
    fn begin(target: &Path) -> Outcome<Making> {
        let (folder, name) = (target.parent().unwrap_or(Path::new("/")), target.file_name().unwrap_or_default());
        let path = folder.join(format!("{MARK}{}", name.to_string_lossy()));
        let failed = |e: io::Error| Problem::io(&e, "making a folder", &path);
        match std::fs::create_dir(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
            _ => {}
        }
        let busy = || {
            Problem::new(Code::Busy, "the same model is being brought here by another process")
                .file(target)
                .remedy("wait until it is there")
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
        match flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(busy()),
            locked => locked.map_err(|e| failed(e.into()))?,
        }
        let locked = rustix::fs::fstat(&held).map_err(|e| failed(e.into()))?;
        if !path.symlink_metadata().is_ok_and(|now| now.ino() == locked.st_ino) {
            return Err(busy());
        }
        empty(&path).map_err(failed)?;
        Ok(Making { path, _held: held })
    }

    /// Makes everything durable under its last name.
    fn finish(self, source: &Source, target: &Path) -> Outcome<()> {
        let folder = target.parent().unwrap_or(Path::new("/"));
        let failed = |e: io::Error| match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::EXIST) => super::is_there(target),
            _ => Problem::io(&e, "giving the model its name", target),
        };
        RealDisk.sync_folder(&self.path).map_err(failed)?;
        match source.parts.first() {
            Some(part) if !source.folder => RealDisk.rename(&self.path.join(&part.name), target).map_err(failed)?,
            _ => RealDisk.rename(&self.path, target).map_err(failed)?,
        }
        RealDisk.sync_folder(folder).map_err(|e| Problem::io(&e, "making the model durable", target))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // Under its last name it is no longer here.
        if empty(&self.path).is_ok() {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// Removes the files of a folder of ours: there are none deeper.
fn empty(folder: &Path) -> io::Result<()> {
    match std::fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        listed => listed?.try_for_each(|entry| std::fs::remove_file(entry?.path())),
    }
}

fn link(part: &Part, to: &Path) -> Outcome<()> {
    std::fs::hard_link(&part.path, to).map_err(|e| match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::XDEV) => super::other_disk(&part.path),
        Some(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NOSYS) => {
            Problem::new(Code::NotSupported, "this file cannot have a second name here")
                .why(format!("{e}: the disk knows no hard links, or the file belongs to another user"))
                .file(&part.path)
                .remedy("copy the model instead")
        }
        _ => Problem::io(&e, "linking a file of the model", &part.path),
    })?;
    let same = to.symlink_metadata().is_ok_and(|now| Status::of(&now) == part.status);
    if same { Ok(()) } else { Err(changed(&part.path)) }
}

fn copy(part: &Part, to: &Path, verify: bool, going: &mut dyn FnMut(u64) -> Outcome<()>) -> Outcome<()> {
    let reading = |e: io::Error| Problem::io(&e, "reading a file of the model", &part.path);
    let writing = |e: io::Error| Problem::io(&e, "writing a file of the model", to);
    let mut from = regular(&part.path).map_err(reading)?;
    let is_same = |file: &File| file.metadata().is_ok_and(|now| Status::of(&now) == part.status);
    if !is_same(&from) {
        return Err(changed(&part.path));
    }
    let mut out = OpenOptions::new().write(true).create_new(true).open(to).map_err(writing)?;
    let (mut left, mut hash, mut piece) = (part.status.bytes, Xxh3::new(), vec![0; PIECE]);
    while left > 0 {
        let n = from.read(&mut piece[..left.min(PIECE as u64) as usize]).map_err(reading)?;
        if n == 0 {
            return Err(changed(&part.path));
        }
        hash.update(&piece[..n]);
        out.write_all(&piece[..n]).map_err(writing)?;
        left -= n as u64;
        going(n as u64)?;
    }
    out.sync_all().map_err(writing)?;
    if !is_same(&from) {
        return Err(changed(&part.path));
    }
    let right = !verify || hash_of(to, &mut piece).map_err(writing)? == (part.status.bytes, hash.digest());
    if right {
        Ok(())
    } else {
        Err(Problem::new(Code::DiskFailed, "a copy holds other bytes than were written").file(to))
    }
}

/// Size and hash of a file as the disk gives it back: what the system still remembers of it is dropped first.
fn hash_of(path: &Path, piece: &mut [u8]) -> io::Result<(u64, u64)> {
    let mut file = regular(path)?;
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    let (mut bytes, mut hash) = (0u64, Xxh3::new());
    loop {
        match file.read(piece)? {
            0 => return Ok((bytes, hash.digest())),
            n => {
                hash.update(&piece[..n]);
                bytes += n as u64;
            }
        }
    }
}

/// Opened so that neither a link nor a pipe under the name can lead elsewhere or hang.
fn regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn changed(path: &Path) -> Problem {
    Problem::new(Code::ModelChanged, "a file of the model changed while it was taken")
        .file(path)
        .kept("the model, where it was")
        .remedy("wait until nothing writes to it, then try again")
}
