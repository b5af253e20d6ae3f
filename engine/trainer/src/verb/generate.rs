//! `generate`: tokens as they come.

use super::Lines;
use protocol::Outcome;
use protocol::verb::{Generate, Generated};
use std::io::Write;

/// Carries out the request.
pub fn main<W: Write>(_request: Generate, _lines: &mut Lines<W>) -> Outcome<Generated> {
    todo!()
}
