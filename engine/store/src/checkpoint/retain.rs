//! Which checkpoints go when a new one is durable.

use crate::disk::Disk;
use protocol::Problem;
use std::path::Path;

/// What [`retain`] did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retained {
    /// Steps whose checkpoints were removed.
    pub removed: Vec<u64>,
    /// What could not be removed, or why nothing was; training goes on.
    pub problems: Vec<Problem>,
}

/// Removes old checkpoints of run `run`, after the newest has been read again and verified. Kept are the `keep` newest (at
/// least one) and the steps in `best` and `pins`; what is not named like a checkpoint or has no manifest of this run is
/// never touched. Where the newest is damaged nothing is removed.
pub fn retain(disk: &dyn Disk, checkpoints: &Path, run: &str, keep: u32, best: &[u64], pins: &[u64]) -> Retained {
    let _ = (disk, checkpoints, run, keep, best, pins);
    todo!()
}
