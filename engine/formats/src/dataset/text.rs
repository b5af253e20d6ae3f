//! Plain text in blocks, cut where a reader would: at a blank line, else at a line's end, else at a space. All blocks of a
//! file together are the file.

use super::stream::{Body, Bytes, Raw};
use protocol::Outcome;

/// Longest block: enough lines for a good cut, few enough that a small book gives hundreds to choose an evaluation from.
const BLOCK: usize = 16 * 1024;

pub(super) struct Blocks {
    pub(super) bytes: Bytes,
    held: Vec<u8>,
    line: u64,
    begins: bool,
}

impl Blocks {
    pub fn new(bytes: Bytes) -> Blocks {
        Blocks { line: bytes.line, bytes, held: Vec::new(), begins: true }
    }

    pub fn next(&mut self) -> Outcome<Option<Raw>> {
        // One byte more than a block tells whether the file goes on.
        while self.held.len() <= BLOCK {
            let buffer = self.bytes.peek()?;
            if buffer.is_empty() {
                break;
            }
            let n = buffer.len().min(BLOCK + 1 - self.held.len());
            self.held.extend_from_slice(&buffer[..n]);
            self.bytes.consume(n);
        }
        if self.held.is_empty() {
            return Ok(None);
        }
        let ends = self.held.len() <= BLOCK;
        let rest = if ends { Vec::new() } else { self.held.split_off(cut(&self.held[..BLOCK])) };
        let block = std::mem::replace(&mut self.held, rest);
        let (line, begins) = (self.line, self.begins);
        self.line += block.iter().filter(|b| **b == b'\n').count() as u64;
        self.begins = false;
        Ok(Some(Raw { line, begins, ends, body: Ok(Body::Text(block)) }))
    }
}

/// Where to cut; never 0, never inside a character.
fn cut(block: &[u8]) -> usize {
    let blank = block.windows(2).rposition(|w| w == b"\n\n").map(|i| i + 2);
    let line = || block.iter().rposition(|b| *b == b'\n').map(|i| i + 1);
    let space = || block.iter().rposition(|b| *b == b' ').filter(|i| *i > 0);
    let character = || (block.len().saturating_sub(3)..=block.len()).rev().find(|i| is_boundary(block, *i));
    let half = block.len() / 2;
    blank.filter(|i| *i > half).or_else(line).or_else(space).or_else(character).unwrap_or(block.len())
}

/// True where a character ends: the last one before `at` is whole.
fn is_boundary(block: &[u8], at: usize) -> bool {
    match std::str::from_utf8(&block[at.saturating_sub(4).min(at)..at]) {
        Ok(_) => true,
        // Broken bytes at the front are the end of an earlier character; at the back they are a cut one.
        Err(e) => e.error_len().is_some() && last_is_whole(&block[..at]),
    }
}

fn last_is_whole(block: &[u8]) -> bool {
    (1..=4).any(|n| block.len() >= n && std::str::from_utf8(&block[block.len() - n..]).is_ok())
}
