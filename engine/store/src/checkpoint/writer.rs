//! Saving: a temporary folder, file by file, then the final name.

use super::Manifest;
use crate::disk::Disk;
use protocol::{Outcome, Problem};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why the content of a file could not be given: `?` makes it from either.
#[derive(Debug, thiserror::Error)]
pub enum WriteFailure {
    /// The write itself.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What was to be written.
    #[error(transparent)]
    Problem(#[from] Problem),
}

/// A checkpoint being written; dropped before [`Writer::commit`], it leaves nothing.
pub struct Writer<'d> {
    disk: &'d dyn Disk,
    temp: PathBuf,
    manifest: Manifest,
}

impl<'d> Writer<'d> {
    /// Begins the checkpoint of a step below `checkpoints`, and removes what dead writers left there. The caller holds the
    /// run's lock.
    /// Errors: `DiskFull`, `DiskFailed`; older checkpoints are untouched.
    pub fn begin(disk: &'d dyn Disk, checkpoints: &Path, step: u64, run: &str) -> Outcome<Writer<'d>> {
        let _ = (disk, checkpoints, step, run);
        todo!()
    }

    /// Says how many bytes will come, so that a disk that is too full is found before anything is written.
    /// Errors: `DiskFull` with the needed and the free bytes; nothing is left.
    pub fn expecting(self, bytes: u64) -> Outcome<Writer<'d>> {
        let _ = (bytes, self.disk, &self.temp);
        todo!()
    }

    /// Streams one file; `fill` writes its content to the `Write` it is given. The file is fsynced when this returns.
    /// Errors: `DiskFull`, `DiskFailed` with path, needed and free bytes, or `fill`'s own problem. After an error the whole
    /// checkpoint is given up.
    pub fn file(&mut self, name: &str, fill: impl FnOnce(&mut dyn Write) -> Result<(), WriteFailure>) -> Outcome<()> {
        let _ = (name, fill, &self.manifest);
        todo!()
    }

    /// Writes the manifest, makes everything durable and gives it the final name: only when this returns does the
    /// checkpoint exist. One of the same step that verifies is kept instead; a damaged one is replaced.
    /// Errors: `DiskFull`, `DiskFailed`; the new one is gone, older checkpoints are untouched.
    pub fn commit(self) -> Outcome<Manifest> {
        todo!()
    }
}
