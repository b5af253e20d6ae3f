//! Who runs a job, who owns a device: a flock. It belongs to the open description, so it is held until every process that
//! inherited it has ended, however it ended. What is written in the file is for messages only and never decides.

use crate::identity::{self, Identity};
use protocol::{Code, Outcome, Problem};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::{Errno, FdFlags};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// Attempts at a lock: [`is_held`] of another process takes it for an instant, and 20 ms outlast that.
const ATTEMPTS: u32 = 20;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes of an owner record that are read: ours have about 90.
const RECORD_BYTES: u64 = 1024;

/// A lock that is held until this value and every inherited copy of its descriptor are closed.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Adopts a lock that was inherited, and keeps it from being inherited any further.
    /// Errors: `Busy` where the descriptor does not hold the lock and somebody else does, `DiskFailed` where it cannot.
    pub fn from_fd(fd: OwnedFd) -> Outcome<Lock> {
        rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC).map_err(|e| broken(e, Path::new("")))?;
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { file: File::from(fd) }),
            Err(Errno::WOULDBLOCK) => Err(Problem::new(Code::Busy, "the inherited lock is held by another process")),
            Err(error) => Err(broken(error, Path::new(""))),
        }
    }

    /// A second descriptor of the same lock, one that a child inherits.
    /// Errors: `DiskFailed` where no descriptor is left.
    pub fn inheritable(&self) -> Outcome<OwnedFd> {
        rustix::io::dup(&self.file).map_err(|e| broken(e, Path::new("")))
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Takes the lock and writes this process into the file; `None` where another one holds it.
/// Errors: `FileUnreadable` or `DiskFailed` where the file cannot be opened.
pub fn try_lock(path: &Path) -> Outcome<Option<Lock>> {
    for attempt in 0..ATTEMPTS {
        let file = open(path, OFlags::RDWR | OFlags::CREATE)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_still(&file, path) => {
                record(&file);
                return Ok(Some(Lock { file }));
            }
            // The file was removed in between: what was locked is nobody's any more.
            Ok(()) => continue,
            Err(Errno::WOULDBLOCK) if attempt + 1 < ATTEMPTS => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(broken(error, path)),
        }
    }
    Ok(None)
}

/// Waits for the lock of a folder, a short while: it guards read-modify-write of small files in it.
/// Errors: `Busy` after two seconds.
pub fn of_folder(path: &Path) -> Outcome<Lock> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| broken(e, path))?;
    for _ in 0..2000 {
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { file: File::from(fd) }),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
            Err(error) => return Err(broken(error, path)),
        }
    }
    Err(Problem::new(Code::Busy, "another process is changing this folder").file(path).remedy("try again"))
}

/// True while any process holds the lock. A lock file that is not there is not held.
/// Errors: `FileUnreadable` or `DiskFailed` where the file cannot be opened.
pub fn is_held(path: &Path) -> Outcome<bool> {
    if std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        return Ok(false);
    }
    // Shared, so that two who only look do not see each other.
    match flock(open(path, OFlags::RDONLY)?, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(broken(error, path)),
    }
}

/// Who took the lock last, as written in the file; for messages only.
pub fn owner(path: &Path) -> Option<Identity> {
    let mut text = Vec::new();
    open(path, OFlags::RDONLY).ok()?.take(RECORD_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn open(path: &Path, how: OFlags) -> Outcome<File> {
    let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| broken(e, path))?);
    match file.metadata() {
        Ok(status) if status.is_file() => Ok(file),
        Ok(_) => Err(Problem::new(Code::DiskFailed, "the lock is not a regular file").file(path).remedy("remove it")),
        Err(error) => Err(Problem::io(&error, "opening a lock", path)),
    }
}

fn is_still(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(held), Ok(named)) => (held.dev(), held.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// Best effort: the lock holds whether or not the record could be written.
fn record(file: &File) {
    let Some(text) = identity::own().and_then(|own| serde_json::to_string(&own).ok()) else { return };
    let _ = file.set_len(0).and_then(|()| file.write_all_at(format!("{text}\n").as_bytes(), 0));
}

fn broken(error: Errno, path: &Path) -> Problem {
    Problem::io(&error.into(), "locking", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn one_holds_it_and_the_next_is_told_who() {
        let _alone = crate::testing::alone();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert!(!is_held(&path).unwrap());
        let lock = try_lock(&path).unwrap().unwrap();
        assert!(is_held(&path).unwrap());
        assert!(try_lock(&path).unwrap().is_none());
        assert_eq!(owner(&path), identity::own());
        drop(lock);
        assert!(!is_held(&path).unwrap());
        assert!(try_lock(&path).unwrap().is_some());
    }

    #[test]
    fn a_forged_record_of_a_living_stranger_blocks_nothing() {
        let _alone = crate::testing::alone();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
        let forged = serde_json::to_string(&identity::of_pid(stranger.id()).unwrap()).unwrap();
        std::fs::write(&path, forged).unwrap();
        assert!(!is_held(&path).unwrap());
        let lock = try_lock(&path).unwrap();
        assert!(lock.is_some());
        assert!(stranger.try_wait().unwrap().is_none(), "the stranger still runs");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn a_child_that_inherited_it_holds_it_on() {
        let _alone = crate::testing::alone();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = try_lock(&path).unwrap().unwrap();
        let inherited = lock.inheritable().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        drop((lock, inherited));
        assert!(is_held(&path).unwrap(), "the child has the description still");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!is_held(&path).unwrap());
    }

    #[test]
    fn an_ordinary_child_does_not_inherit_it() {
        let _alone = crate::testing::alone();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = try_lock(&path).unwrap().unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        drop(lock);
        assert!(!is_held(&path).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn an_adopted_lock_is_the_same_lock() {
        let _alone = crate::testing::alone();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = try_lock(&path).unwrap().unwrap();
        let adopted = Lock::from_fd(lock.inheritable().unwrap()).unwrap();
        drop(lock);
        assert!(is_held(&path).unwrap());
        let other = File::open(&path).unwrap();
        assert_eq!(Lock::from_fd(other.into()).unwrap_err().code, Code::Busy);
        drop(adopted);
        assert!(!is_held(&path).unwrap());
    }

    #[test]
    fn a_pipe_or_link_in_its_place_is_refused_without_hanging() {
        let _alone = crate::testing::alone();
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(try_lock(&pipe).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        assert!(try_lock(&link).is_err());
    }
}
