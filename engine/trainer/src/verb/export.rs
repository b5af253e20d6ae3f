//! `export`: weights for other programs, proved by reading them back.

use super::Lines;
use protocol::Outcome;
use protocol::verb::{Export, Exported};
use std::io::Write;

/// Carries out the request.
pub fn main<W: Write>(_request: Export, _lines: &mut Lines<W>) -> Outcome<Exported> {
    todo!()
}
