//! Starts a supervisor that outlives whoever started it.

use protocol::Outcome;
use std::path::Path;

/// Starts `anneal supervise RUN_FOLDER` (the `anneal` beside the current executable), detached, and returns once it
/// holds the run, or the problem that kept it from that.
pub fn launch(_home: &Path, _run_folder: &Path) -> Outcome<()> {
    todo!()
}
