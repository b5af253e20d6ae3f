//! Attention in blocks of 96 × 96 scores (a multiple of the 6 rows and the 16 columns of a register tile).

mod backward;
mod forward;

pub(super) use backward::{Saved, backward};
pub(super) use forward::{decode, forward};

use super::Shape;
use crate::gemm::Matrix;

/// Queries, and keys, of a block of scores: 36 KiB, so that the few blocks alive fit the second-level cache.
const BLOCK: usize = 96;

/// Multiplications of a pass, to the nearest power of ten: whether threads are worth waking.
fn operations(shape: Shape) -> usize {
    shape.rows * shape.length * shape.length * shape.heads * shape.head_dim
}

#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub v: &'a [f32],
    /// Empty where every position from 0 on is visible.
    pub segment_start: &'a [u32],
}

/// Sizes, with the tokens that stand before the queries in the keys and values.
#[derive(Clone, Copy)]
struct Layout {
    shape: Shape,
    past: usize,
}

impl Layout {
    /// Query heads that share a key head.
    fn group(self) -> usize {
        self.shape.heads / self.shape.kv_heads
    }

    /// Queries of row b, head h, from position t on.
    fn queries(self, q: &[f32], [b, h, t]: [usize; 3]) -> Matrix<'_> {
        let Shape { length, heads, head_dim, .. } = self.shape;
        Matrix::rows(q, heads * head_dim).at(b * length + t, h * head_dim)
    }

    /// Keys or values of row b, key head kh, from position t on.
    fn keys(self, k: &[f32], [b, kh, t]: [usize; 3]) -> Matrix<'_> {
        let Shape { length, kv_heads, head_dim, .. } = self.shape;
        Matrix::rows(k, kv_heads * head_dim).at(b * (self.past + length) + t, kh * head_dim)
    }

    /// Visible keys of query t of row b, as a range that is cut to the keys `from..to` and counts from `from`.
    fn visible(self, segment_start: &[u32], [b, t]: [usize; 2], [from, to]: [usize; 2]) -> [usize; 2] {
        let start = segment_start.get(b * self.shape.length + t).map_or(0, |start| *start as usize);
        let end = (self.past + t + 1).clamp(from, to);
        [start.clamp(from, end) - from, end - from]
    }

    /// The first key that any of the queries `from..to` of row b sees.
    fn first_key(self, segment_start: &[u32], b: usize, [from, to]: [usize; 2]) -> usize {
        let row = b * self.shape.length;
        segment_start
            .get(row + from..row + to)
            .and_then(|starts| starts.iter().min())
            .map_or(0, |start| *start as usize)
    }
}
