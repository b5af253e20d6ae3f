//! What the tests of several verbs share.

use protocol::verb::Line;
use protocol::{Outcome, Problem};
use std::path::PathBuf;

/// A folder of golden files.
pub fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name).canonicalize().unwrap()
}

/// The problem of a refusal.
pub fn problem_of<T>(outcome: Outcome<T>) -> Problem {
    match outcome {
        Ok(_) => panic!("this must be refused"),
        Err(problem) => problem,
    }
}

/// All text that was printed piece by piece.
pub fn said(printed: &[u8]) -> String {
    let lines = std::str::from_utf8(printed).unwrap().lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter_map(|line| match line {
            Line::Text { text } => Some(text),
            _ => None,
        })
        .collect()
}
