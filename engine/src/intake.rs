//! Intake: what the paths are that a user dropped, decided by content.

use protocol::facts::ItemFacts;
use std::path::PathBuf;

/// Facts of each path, in the order given. A path that cannot be used is `Kind::Unknown` with a problem; never an error.
pub fn inspect(paths: &[PathBuf]) -> Vec<ItemFacts> {
    let _ = paths;
    todo!()
}
