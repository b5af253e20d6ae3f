//! The backward pass: one thread a row and key head, blocks of keys outside, blocks of queries inside. Every gradient
//! is then gathered in one order, and belongs to one thread alone.

use super::{BLOCK, Inputs, Layout};
use crate::attention::Shape;
use crate::gemm::{Matrix, Target, multiply, multiply_into, pack, packed_len};
use crate::simd::{exp, sum_of, vectorised};
use crate::team::{Shared, Team};

#[derive(Clone, Copy)]
pub(in crate::attention) struct Saved<'a> {
    pub out: &'a [f32],
    pub lse: &'a [f32],
    pub dout: &'a [f32],
}

/// dq, dk, dv; each piece of work owns the heads of its group and its key head.
type Gradients<'a> = [&'a Shared<'a, f32>; 3];

pub(in crate::attention) fn backward(
    team: &Team,
    to: [&mut [f32]; 3],
    from: Inputs<'_>,
    saved: Saved<'_>,
    shape: Shape,
) {
    let layout = Layout { shape, past: 0 };
    if to[0].is_empty() {
        return;
    }
    let to = to.map(Shared::new);
    let work = Work { to: to.each_ref(), from, saved, layout };
    team.each_with(
        shape.rows * shape.kv_heads,
        || Scratch::new(layout),
        |scratch, piece| {
            let (b, kh) = (piece / shape.kv_heads, piece % shape.kv_heads);
            work.clear_dq(b, kh);
            work.deltas(&mut scratch.deltas, b, kh);
            for start in (0..shape.length).step_by(BLOCK) {
                work.key_block(scratch, [b, kh], [start, shape.length.min(start + BLOCK)]);
            }
        },
    );
}

#[derive(Clone, Copy)]
struct Work<'a> {
    to: Gradients<'a>,
    from: Inputs<'a>,
    saved: Saved<'a>,
    layout: Layout,
}

/// What one thread works with. Names of packed panels end in the operand they hold.
struct Scratch {
    /// `Σ dout · out` of each head of the group and query of the row.
    deltas: Vec<f32>,
    probabilities: Vec<f32>,
    dscores: Vec<f32>,
    keys_transposed: Vec<f32>,
    values_transposed: Vec<f32>,
    keys: Vec<f32>,
    queries: Vec<f32>,
    douts: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
}

impl Scratch {
    fn new(layout: Layout) -> Scratch {
        let Shape { length, head_dim, .. } = layout.shape;
        let of = |len| vec![0.0; len];
        let (along, across) = (packed_len(BLOCK, head_dim), packed_len(head_dim, BLOCK));
        Scratch {
            deltas: of(layout.group() * length),
            probabilities: of(BLOCK * BLOCK),
            dscores: of(BLOCK * BLOCK),
            keys_transposed: of(across),
            values_transposed: of(across),
            keys: of(along),
            queries: of(along),
            douts: of(along),
            dk: of(BLOCK * head_dim),
            dv: of(BLOCK * head_dim),
        }
    }
}

impl Work<'_> {
    fn head(&self, kh: usize, g: usize) -> usize {
        kh * self.layout.group() + g
    }

    fn clear_dq(&self, b: usize, kh: usize) {
        let Shape { length, heads, head_dim, .. } = self.layout.shape;
        let group = self.layout.group() * head_dim;
        for t in 0..length {
            let start = (b * length + t) * heads * head_dim + kh * group;
            // SAFETY: the heads of this group belong to this piece alone.
            unsafe { self.to[0].slice(start, start + group) }.fill(0.0);
        }
    }

    fn deltas(&self, deltas: &mut [f32], b: usize, kh: usize) {
        let Shape { length, head_dim, .. } = self.layout.shape;
        for g in 0..self.layout.group() {
            let at = [b, self.head(kh, g), 0];
            let (out, dout) = (self.layout.queries(self.saved.out, at), self.layout.queries(self.saved.dout, at));
            for t in 0..length {
                deltas[g * length + t] =
                    dot(&out.data[t * out.row..][..head_dim], &dout.data[t * dout.row..][..head_dim]);
            }
        }
    }

    fn key_block(&self, scratch: &mut Scratch, [b, kh]: [usize; 2], keys: [usize; 2]) {
        let Shape { length, head_dim, .. } = self.layout.shape;
        let n = keys[1] - keys[0];
        let (k, v) = (self.layout.keys(self.from.k, [b, kh, keys[0]]), self.layout.keys(self.from.v, [b, kh, keys[0]]));
        pack(&mut scratch.keys_transposed[..packed_len(head_dim, n)], k.transposed(), head_dim, n);
        pack(&mut scratch.values_transposed[..packed_len(head_dim, n)], v.transposed(), head_dim, n);
        pack(&mut scratch.keys[..packed_len(n, head_dim)], k, n, head_dim);
        scratch.dk.fill(0.0);
        scratch.dv.fill(0.0);
        for start in (keys[0]..length).step_by(BLOCK) {
            let queries = [start, length.min(start + BLOCK)];
            if self.layout.first_key(self.from.segment_start, b, queries) < keys[1] {
                (0..self.layout.group()).for_each(|g| self.head_block(scratch, [b, kh, g], [queries, keys]));
            }
        }
        for (to, from) in [(self.to[1], &scratch.dk), (self.to[2], &scratch.dv)] {
            self.put(to, from, [b, kh], keys);
        }
    }

    /// One head's block of scores, recomputed, and what it adds to all three gradients.
    fn head_block(&self, scratch: &mut Scratch, [b, kh, g]: [usize; 3], [queries, keys]: [[usize; 2]; 2]) {
        let Shape { heads, head_dim, length, .. } = self.layout.shape;
        let (m, n) = (queries[1] - queries[0], keys[1] - keys[0]);
        let at = [b, self.head(kh, g), queries[0]];
        let (q, dout) = (self.layout.queries(self.from.q, at), self.layout.queries(self.saved.dout, at));
        self.scores(scratch, [q, dout], [b, kh, g], [queries, keys]);
        let Scratch { probabilities, dscores, keys: packed_keys, queries: packed_q, douts, dk, dv, .. } = scratch;
        let (p, ds) = (Matrix::rows(probabilities, n), Matrix::rows(dscores, n));
        let along = packed_len(m, head_dim);
        pack(&mut douts[..along], dout, m, head_dim);
        multiply_into(dv, head_dim, p.transposed(), &douts[..along], [n, head_dim, m], [1.0, 1.0]);
        pack(&mut packed_q[..along], q, m, head_dim);
        multiply_into(dk, head_dim, ds.transposed(), &packed_q[..along], [n, head_dim, m], [1.0, 1.0]);
        let (stride, first) = (heads * head_dim, ((b * length + queries[0]) * heads + at[1]) * head_dim);
        let data = self.to[0].base(first, (m - 1) * stride + head_dim);
        let target = Target { data, stride, alpha: 1.0, beta: 1.0 };
        // SAFETY: `base` found the rows inside dq, and the heads of this group belong to this piece alone.
        unsafe { multiply(target, ds, &packed_keys[..packed_len(n, head_dim)], [m, head_dim, n]) };
    }

    /// Probabilities and gradients of the scores.
    fn scores(
        &self,
        scratch: &mut Scratch,
        [q, dout]: [Matrix<'_>; 2],
        [b, kh, g]: [usize; 3],
        [queries, keys]: [[usize; 2]; 2],
    ) {
        let Shape { head_dim, length, heads, scale, .. } = self.layout.shape;
        let (m, n, across) = (queries[1] - queries[0], keys[1] - keys[0], packed_len(head_dim, keys[1] - keys[0]));
        let Scratch { probabilities, dscores, keys_transposed, values_transposed, deltas, .. } = scratch;
        multiply_into(probabilities, n, q, &keys_transposed[..across], [m, n, head_dim], [scale, 0.0]);
        multiply_into(dscores, n, dout, &values_transposed[..across], [m, n, head_dim], [1.0, 0.0]);
        for i in 0..m {
            let t = queries[0] + i;
            let lse = self.saved.lse[(b * length + t) * heads + self.head(kh, g)];
            let visible = self.layout.visible(self.from.segment_start, [b, t], keys);
            let rows = (&mut probabilities[i * n..][..n], &mut dscores[i * n..][..n]);
            score_gradients(rows.0, rows.1, visible, [lse, deltas[g * length + t], scale]);
        }
    }

    /// Copies a block of dk or dv to where it belongs.
    fn put(&self, to: &Shared<'_, f32>, from: &[f32], [b, kh]: [usize; 2], keys: [usize; 2]) {
        let Shape { length, kv_heads, head_dim, .. } = self.layout.shape;
        for (t, from) in (keys[0]..keys[1]).zip(from.chunks_exact(head_dim)) {
            let start = ((b * length + t) * kv_heads + kh) * head_dim;
            // SAFETY: this key head of this row belongs to this piece alone.
            unsafe { to.slice(start, start + head_dim) }.copy_from_slice(from);
        }
    }
}

vectorised! {
    fn dot(a: &[f32], b: &[f32]) -> f32 {
        sum_of([a, b], |[a, b]| a * b)
    }

    /// `p = e^(score - lse)` and `dscore = p · (dp - delta) · scale` in place, both zero where nothing is seen.
    fn score_gradients(p: &mut [f32], ds: &mut [f32], visible: [usize; 2], by: [f32; 3]) {
        let ([start, end], [lse, delta, scale]) = (visible, by);
        for row in [&mut *p, &mut *ds] {
            row[..start].fill(0.0);
            row[end..].fill(0.0);
        }
        for (p, ds) in p[start..end].iter_mut().zip(&mut ds[start..end]) {
            *p = exp(*p - lse);
            *ds = *p * (*ds - delta) * scale;
        }
    }
}
