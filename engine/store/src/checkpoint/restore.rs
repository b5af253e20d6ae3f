//! Finding, checking and opening checkpoints.

use super::Manifest;
use crate::disk::Disk;
use protocol::record::CheckpointRow;
use protocol::{Outcome, Problem};
use std::path::{Path, PathBuf};

/// A checkpoint to restore from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// Steps done.
    pub step: u64,
    /// Its folder.
    pub dir: PathBuf,
    /// What it consists of.
    pub manifest: Manifest,
}

impl Restore {
    /// Opens one checkpoint folder, wherever it is (a fork starts from another run's), and checks every checksum.
    /// Errors: `CheckpointDamaged` naming the file.
    pub fn open(disk: &dyn Disk, dir: &Path) -> Outcome<Restore> {
        let _ = (disk, dir);
        todo!()
    }

    /// Path of one of its files.
    /// Errors: `CheckpointDamaged` where the manifest lists no such file.
    pub fn file(&self, name: &str) -> Outcome<PathBuf> {
        todo!("{name}")
    }
}

/// All checkpoints of a `checkpoints/` folder, newest first, as far as can be told without reading their content: `verified`
/// is null. A missing folder holds none.
/// Errors: `FileUnreadable`, `DiskFailed` where the folder cannot be read.
pub fn list(disk: &dyn Disk, checkpoints: &Path) -> Outcome<Vec<CheckpointRow>> {
    let _ = (disk, checkpoints);
    todo!()
}

/// Compares size and checksum of every file of one checkpoint folder.
/// Errors: `CheckpointDamaged` naming the damaged file.
pub fn verify(disk: &dyn Disk, dir: &Path) -> Outcome<()> {
    Restore::open(disk, dir).map(|_| ())
}

/// The newest checkpoint of run `run` that verifies, and what is wrong with each newer one. `None` with problems means that
/// all are damaged: never start from step 0 silently then.
pub fn newest_good(disk: &dyn Disk, checkpoints: &Path, run: &str) -> (Option<Restore>, Vec<Problem>) {
    let _ = (disk, checkpoints, run);
    todo!()
}
