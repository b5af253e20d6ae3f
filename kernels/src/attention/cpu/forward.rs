//! The forward pass: a block of queries runs over the keys it sees, with a running maximum and sum (online softmax,
//! Milakov and Gimelshein, 2018).

use super::{BLOCK, Inputs, Layout};
use crate::attention::Shape;
use crate::gemm::{multiply_into, pack, packed_len};
use crate::simd::{exp, largest, sum_of, vectorised};
use crate::team::{Shared, Team};

pub(in crate::attention) fn forward(team: &Team, [out, lse]: [&mut [f32]; 2], from: Inputs<'_>, shape: Shape) {
    blocks(team, [out, lse], from, Layout { shape, past: 0 });
}

pub(in crate::attention) fn decode(team: &Team, out: &mut [f32], [q, k, v]: [&[f32]; 3], past: usize, shape: Shape) {
    let mut lse = vec![0.0; shape.length * shape.heads];
    blocks(team, [out, &mut lse], Inputs { q, k, v, segment_start: &[] }, Layout { shape, past });
}

fn blocks(team: &Team, [out, lse]: [&mut [f32]; 2], from: Inputs<'_>, layout: Layout) {
    let Shape { rows, length, kv_heads, head_dim, .. } = layout.shape;
    if out.is_empty() {
        return;
    }
    let (out, lse) = (Shared::new(out), Shared::new(lse));
    let along = length.div_ceil(BLOCK);
    let scratch = || Scratch::new(layout.group(), head_dim);
    let team = team.for_work(super::operations(layout.shape) + layout.past * length * layout.shape.heads * head_dim);
    team.each_with(rows * kv_heads * along, scratch, |scratch, piece| {
        // Later blocks see more keys: they come first, so that no thread ends with a long one alone.
        let (b, kh, block) = (piece / along / kv_heads, piece / along % kv_heads, along - 1 - piece % along);
        let queries = [block * BLOCK, length.min((block + 1) * BLOCK)];
        query_block(scratch, from, layout, [b, kh], queries);
        for g in 0..layout.group() {
            for t in queries[0]..queries[1] {
                let head = (b * length + t) * layout.shape.heads + kh * layout.group() + g;
                // SAFETY: a piece is all heads of one group in one block of one row: heads of no other piece.
                let to = unsafe { (out.slice(head * head_dim, (head + 1) * head_dim), lse.slice(head, head + 1)) };
                scratch.finish(to.0, &mut to.1[0], g * BLOCK + t - queries[0]);
            }
        }
    });
}

/// What one thread works with: `acc`, `max` and `sum` for each head of the group and query of the block.
struct Scratch {
    head_dim: usize,
    acc: Vec<f32>,
    max: Vec<f32>,
    sum: Vec<f32>,
    scores: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Scratch {
    fn new(group: usize, head_dim: usize) -> Scratch {
        let heads = group * BLOCK;
        let of = |len| vec![0.0; len];
        Scratch {
            head_dim,
            acc: of(heads * head_dim),
            max: of(heads),
            sum: of(heads),
            scores: of(BLOCK * BLOCK),
            keys: of(packed_len(head_dim, BLOCK)),
            values: of(packed_len(BLOCK, head_dim)),
        }
    }

    fn reset(&mut self) {
        self.acc.fill(0.0);
        self.max.fill(f32::NEG_INFINITY);
        self.sum.fill(0.0);
    }

    /// Divides by the sum. A query that saw nothing has 0 / 0, which is NaN.
    fn finish(&self, out: &mut [f32], lse: &mut f32, at: usize) {
        let acc = &self.acc[at * self.head_dim..][..self.head_dim];
        out.iter_mut().zip(acc).for_each(|(out, acc)| *out = acc / self.sum[at]);
        *lse = self.max[at] + self.sum[at].ln();
    }
}

fn query_block(scratch: &mut Scratch, from: Inputs<'_>, layout: Layout, [b, kh]: [usize; 2], queries: [usize; 2]) {
    scratch.reset();
    let end = layout.past + queries[1];
    let first = layout.first_key(from.segment_start, b, queries) / BLOCK * BLOCK;
    for start in (first..end).step_by(BLOCK) {
        let keys = [start, end.min(start + BLOCK)];
        let (n, head_dim) = (keys[1] - keys[0], layout.shape.head_dim);
        let at = [b, kh, start];
        pack(&mut scratch.keys[..packed_len(head_dim, n)], layout.keys(from.k, at).transposed(), head_dim, n);
        pack(&mut scratch.values[..packed_len(n, head_dim)], layout.keys(from.v, at), n, head_dim);
        for g in 0..layout.group() {
            head_block(scratch, from, layout, [b, kh, g], [queries, keys]);
        }
    }
}

/// One head's scores of a block of queries and keys, and what they add.
fn head_block(
    scratch: &mut Scratch,
    from: Inputs<'_>,
    layout: Layout,
    [b, kh, g]: [usize; 3],
    [queries, keys]: [[usize; 2]; 2],
) {
    let (m, n, head_dim) = (queries[1] - queries[0], keys[1] - keys[0], layout.shape.head_dim);
    let Scratch { acc, max, sum, scores, keys: packed_keys, values, .. } = scratch;
    let q = layout.queries(from.q, [b, kh * layout.group() + g, queries[0]]);
    let packed_keys = &packed_keys[..packed_len(head_dim, n)];
    multiply_into(scores, n, q, packed_keys, [m, n, head_dim], [layout.shape.scale, 0.0]);
    for i in 0..m {
        let (row, at) = (&mut scores[i * n..][..n], g * BLOCK + i);
        let visible = layout.visible(from.segment_start, [b, queries[0] + i], keys);
        soften(row, visible, &mut acc[at * head_dim..][..head_dim], &mut max[at], &mut sum[at]);
    }
    let probabilities = crate::gemm::Matrix::rows(scores, n);
    let acc = &mut acc[g * BLOCK * head_dim..][..m * head_dim];
    multiply_into(acc, head_dim, probabilities, &values[..packed_len(n, head_dim)], [m, head_dim, n], [1.0, 1.0]);
}

vectorised! {
    /// Turns scores into probabilities relative to the running maximum and brings what was gathered so far to it.
    fn soften(row: &mut [f32], visible: [usize; 2], acc: &mut [f32], max: &mut f32, sum: &mut f32) {
        let [start, end] = visible;
        row[..start].fill(0.0);
        row[end..].fill(0.0);
        let row = &mut row[start..end];
        if row.is_empty() {
            return;
        }
        let here = largest(row);
        let next = if here > *max { here } else { *max };
        row.iter_mut().for_each(|x| *x = exp(*x - next));
        let correction = if *max == f32::NEG_INFINITY { 0.0 } else { exp(*max - next) };
        *sum = *sum * correction + sum_of([row], |[x]| x);
        if correction != 1.0 {
            acc.iter_mut().for_each(|acc| *acc *= correction);
        }
        *max = next;
    }
}
