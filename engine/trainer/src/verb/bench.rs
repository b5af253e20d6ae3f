//! `bench`: measures itself beside the machine's limit.

use super::Lines;
use protocol::Outcome;
use protocol::verb::Bench;
use std::io::Write;

/// Carries out the request.
pub fn main<W: Write>(_request: Bench, _lines: &mut Lines<W>) -> Outcome<serde_json::Value> {
    todo!()
}
