//! The file system. Links in the last component are never followed, special files never opened.

use super::{Disk, Listed, Output};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::mkdir(path, Mode::RWXU)?)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Box::new(File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(regular(path)?))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        let status = fs::symlink_metadata(path)?;
        if status.is_file() { Ok(status.len()) } else { Err(not_regular()) }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Listed>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                all.push(Listed { name, folder: entry.file_type()?.is_dir() });
            }
        }
        Ok(all)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Some file systems know no such flag; there the check comes first, under the lock that the caller holds.
            Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(to).is_ok() => Err(Errno::EXIST.into()),
            Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to),
            other => Ok(other?),
        }
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::fsync(rustix::fs::open(path, flags, Mode::empty())?)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn free(&self, path: &Path) -> io::Result<u64> {
        let volume = rustix::fs::statvfs(path)?;
        Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
    }
}

impl Output for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Opens a regular file to read; NONBLOCK so that a pipe under its name cannot hang the caller.
pub(crate) fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}
