//! `read`: everything that opens a tokenizer or a template, inside limits.

use super::Lines;
use protocol::Outcome;
use protocol::verb::Read;
use std::io::Write;

/// Carries out the request.
pub fn main<W: Write>(_request: Read, _lines: &mut Lines<W>) -> Outcome<serde_json::Value> {
    todo!()
}
