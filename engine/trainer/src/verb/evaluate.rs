//! `evaluate`: loss and perplexity over a token cache.

use super::Lines;
use protocol::Outcome;
use protocol::verb::{Evaluate, Evaluated};
use std::io::Write;

/// Carries out the request.
pub fn main<W: Write>(_request: Evaluate, _lines: &mut Lines<W>) -> Outcome<Evaluated> {
    todo!()
}
