//! Runs `anneal-trainer VERB` and streams its answer.

use protocol::verb::Line;
use protocol::{Outcome, Problem};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The `anneal-trainer` beside the current executable.
pub fn trainer_path() -> Outcome<PathBuf> {
    todo!()
}

/// Runs `trainer verb`: the request as JSON on its standard input, every line it prints to `on_line`, its result at the
/// end. `Break` ends the process and gives `Cancelled`.
pub fn call(
    _trainer: &Path,
    _verb: &str,
    _request: &impl Serialize,
    _on_line: impl FnMut(&Line) -> ControlFlow<()>,
) -> Outcome<serde_json::Value> {
    Err(Problem::internal("not yet"))
}
