//! Which checkpoints go when a new one is durable.

use super::{TEMP, folder_name, restore};
use crate::disk::{self, Disk};
use protocol::Problem;
use std::io;
use std::path::Path;

/// What [`retain`] did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retained {
    /// Steps whose checkpoints were removed.
    pub removed: Vec<u64>,
    /// What could not be removed, or why nothing was; training goes on.
    pub problems: Vec<Problem>,
}

/// Removes old checkpoints of run `run`, after the newest good one has been read again and verified. Kept are it, the
/// `keep` newest (at least one) and the steps in `best` and `pins`. What is not named like a checkpoint or has no manifest
/// of this run is never touched, nor is one with missing or cut files, which counts for nothing.
pub fn retain(disk: &dyn Disk, checkpoints: &Path, run: &str, keep: u32, best: &[u64], pins: &[u64]) -> Retained {
    let (newest, problems) = restore::newest_good(disk, checkpoints, run);
    let mut retained = Retained { removed: Vec::new(), problems };
    let Some(newest) = newest else { return retained };
    let older = older_than(disk, checkpoints, run, newest.step);
    let surplus = older.into_iter().skip(keep.max(1) as usize - 1);
    for step in surplus.filter(|step| !best.contains(step) && !pins.contains(step)) {
        match remove(disk, checkpoints, step) {
            Ok(()) => retained.removed.push(step),
            Err(error) => retained.problems.push(not_removed(&error, checkpoints, step)),
        }
    }
    retained
}

/// Complete checkpoints of this run before a step, newest first.
fn older_than(disk: &dyn Disk, checkpoints: &Path, run: &str, newest: u64) -> Vec<u64> {
    let mut steps = restore::steps(disk, checkpoints).unwrap_or_default();
    steps.retain(|&step| {
        let dir = checkpoints.join(folder_name(step));
        let ours = || restore::complete(disk, &dir).and_then(|manifest| restore::belongs(&manifest, &dir, run));
        step < newest && ours().is_ok()
    });
    steps
}

/// Out of sight first and for good, so that no power cut shows half a checkpoint under its name.
fn remove(disk: &dyn Disk, checkpoints: &Path, step: u64) -> io::Result<()> {
    let name = folder_name(step);
    let hidden = checkpoints.join(format!("{TEMP}removed-{name}"));
    disk::remove_tree(disk, &hidden)?;
    disk.rename(&checkpoints.join(name), &hidden)?;
    disk.sync_folder(checkpoints)?;
    disk::remove_tree(disk, &hidden)
}

fn not_removed(error: &io::Error, checkpoints: &Path, step: u64) -> Problem {
    Problem::io(error, "removing an old checkpoint", &checkpoints.join(folder_name(step)))
        .kept("all newer checkpoints")
        .remedy("check who owns this folder and whether the disk is read-only")
}
