//! How engines talk to a supervisor: JSON lines over `supervisor.sock` in the run folder.

use protocol::Outcome;
use protocol::link::{Answer, Request};
use std::path::Path;

/// Asks the supervisor of a run; its answer comes within 2 s. `SupervisorLost` when nobody listens.
pub fn request(_run_folder: &Path, _request: Request) -> Outcome<Answer> {
    todo!()
}
