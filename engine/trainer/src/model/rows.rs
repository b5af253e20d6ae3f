//! A buffer of so many elements a row, of which a micro-batch uses the first rows.

use crate::arena::Arena;
use kernels::Buffer;
use protocol::Outcome;
use std::ops::Range;

/// N rows of `width` elements.
#[derive(Clone, Debug)]
pub struct Rows {
    buffer: Buffer,
    width: usize,
}

impl Rows {
    /// Takes `rows` × `width` floats from the arena.
    pub fn take(arena: &mut Arena, name: &str, rows: usize, width: usize) -> Outcome<Rows> {
        Ok(Rows { buffer: arena.take(name, rows * width)?, width })
    }

    /// As [`Rows::take`], one id a row.
    pub fn take_ids(arena: &mut Arena, name: &str, rows: usize) -> Outcome<Rows> {
        Ok(Rows { buffer: arena.take_ids(name, rows)?, width: 1 })
    }

    /// The first `rows` rows.
    pub fn first(&self, rows: usize) -> Buffer {
        self.some(0..rows)
    }

    /// These rows.
    pub fn some(&self, rows: Range<usize>) -> Buffer {
        self.buffer.slice(rows.start * self.width..rows.end * self.width)
    }

    /// The first `rows` rows, as if each had `width` elements; the buffer is at least as wide.
    pub fn narrow(&self, rows: usize, width: usize) -> Buffer {
        self.buffer.slice(0..rows * width)
    }
}
