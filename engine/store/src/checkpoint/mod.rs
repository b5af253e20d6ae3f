//! Checkpoints: folders `step-00000100` below a run's `checkpoints/`, each with a `manifest.json` that lists size and
//! XXH3-128 of every file and ends with its own checksum. There is no pointer file: the newest one that verifies is the
//! latest. One appears under its final name complete, checksummed and durable, or not at all.
//!
//! Writing, saving and removing need the run's lock; reading does not.
//!
//! Not here: what the files hold (`formats`, the trainer) and when to save (the trainer).

mod manifest;
mod restore;
mod retain;
#[cfg(test)]
mod tests;
mod writer;

pub use manifest::{Manifest, ManifestFile};
pub use restore::{Restore, list, newest_good, verify};
pub use retain::{Retained, retain};
pub use writer::{WriteFailure, Writer};

/// Start of the names of what is not finished or no longer counts.
const TEMP: &str = ".tmp-";

/// Folder name of a step's checkpoint: "step-00000100".
pub fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// Step of a checkpoint's folder name; `None` where the name is not exactly one of ours.
pub fn step_of(name: &str) -> Option<u64> {
    let step = name.strip_prefix("step-")?.parse().ok()?;
    (folder_name(step) == name).then_some(step)
}
