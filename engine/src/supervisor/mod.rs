//! One supervisor a job: starts the trainer, watches it, restarts it, keeps the journal, answers engines.
//!
//! `core` decides and touches nothing; `drive` carries its decisions out; `launch` starts a supervisor that outlives the
//! window; `socket` is how engines talk to one; `log` keeps what a trainer prints; `reap` ends a trainer whose supervisor is
//! gone. Not here: waiting for devices (`queue`), the journal's format and the run lock (`store`), what a step is (`trainer`).

pub mod core;
pub mod launch;
pub mod socket;

pub use launch::launch;
pub use socket::request;

use protocol::Outcome;
use std::path::Path;
use std::time::Duration;

/// Runs the supervisor of a job until the job ends: the hidden command `anneal supervise RUN_FOLDER`. HOME is
/// `$ANNEAL_HOME`, else the folder above `runs/`. Returns the exit status: 0 finished, 1 failed or interrupted, 130
/// stopped by the user, 3 never started.
pub fn supervise(_run_folder: &Path) -> i32 {
    todo!()
}

/// Waits at most `patience` for a trainer whose supervisor is gone; one that still holds the run then is ended, by
/// identity and never by number alone. True when a trainer had to be ended.
pub fn reap(_run_folder: &Path, _patience: Duration) -> Outcome<bool> {
    todo!()
}
