//! The backward pass: a piece of work is a block of keys of one row and key head, and runs over the queries that see
//! it. dk and dv of the block are its own; to dq, pieces add in the order of their blocks, each query block at a time.
//! Every gradient is so gathered in one order, and no copy of dq is needed.

use super::{BLOCK, Inputs, Layout};
use crate::attention::Shape;
use crate::gemm::{Matrix, Target, multiply, multiply_into, pack, packed_len};
use crate::simd::{PIECE, exp, sum_of, vectorised};
use crate::team::{Shared, Team};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy)]
pub(in crate::attention) struct Saved<'a> {
    pub out: &'a [f32],
    pub lse: &'a [f32],
    pub dout: &'a [f32],
}

/// dq, dk, dv; a piece of work owns its block of dk and dv, and takes turns with others over dq.
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
    let (sequences, blocks) = (shape.rows * shape.kv_heads, shape.length.div_ceil(BLOCK));
    let order = Order::new(sequences * blocks);
    team.split([&mut *to[0]], [PIECE], |_, [dq]| dq.fill(0.0));
    let to = to.map(Shared::new);
    let work = Work { to: to.each_ref(), from, saved, layout, order: &order };
    let team = team.for_work(super::operations(shape));
    team.each_with(
        sequences * blocks,
        || Scratch::new(layout),
        |scratch, piece| {
            // Blocks of keys rise from piece to piece, so that whoever must wait waits for a piece that has begun.
            let (block, sequence) = (piece / sequences, piece % sequences);
            let _alarm = Alarm(&order);
            work.key_block(scratch, [sequence / shape.kv_heads, sequence % shape.kv_heads], block);
        },
    );
}

#[derive(Clone, Copy)]
struct Work<'a> {
    to: Gradients<'a>,
    from: Inputs<'a>,
    saved: Saved<'a>,
    layout: Layout,
    order: &'a Order,
}

/// What one thread works with: a block of probabilities and of the gradients of scores, packed operands, and the
/// gradients of the block of keys.
struct Scratch {
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
        let head_dim = layout.shape.head_dim;
        let of = |len| vec![0.0; len];
        let (along, across) = (packed_len(BLOCK, head_dim), packed_len(head_dim, BLOCK));
        Scratch {
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

    fn key_block(&self, scratch: &mut Scratch, [b, kh]: [usize; 2], block: usize) {
        let Shape { length, kv_heads, head_dim, .. } = self.layout.shape;
        let keys = [block * BLOCK, length.min((block + 1) * BLOCK)];
        let n = keys[1] - keys[0];
        let (k, v) = (self.layout.keys(self.from.k, [b, kh, keys[0]]), self.layout.keys(self.from.v, [b, kh, keys[0]]));
        pack(&mut scratch.keys_transposed[..packed_len(head_dim, n)], k.transposed(), head_dim, n);
        pack(&mut scratch.values_transposed[..packed_len(head_dim, n)], v.transposed(), head_dim, n);
        pack(&mut scratch.keys[..packed_len(n, head_dim)], k, n, head_dim);
        scratch.dk.fill(0.0);
        scratch.dv.fill(0.0);
        let blocks = length.div_ceil(BLOCK);
        for i in block..blocks {
            let queries = [i * BLOCK, length.min((i + 1) * BLOCK)];
            let seen = self.layout.first_key(self.from.segment_start, b, queries) < keys[1];
            let turn = Turn { place: (b * kv_heads + kh) * blocks + i, block };
            if seen {
                (0..self.layout.group()).for_each(|g| self.head_block(scratch, [b, kh, g], [queries, keys], turn));
            }
            self.order.pass(turn);
        }
        for (to, from) in [(self.to[1], &scratch.dk), (self.to[2], &scratch.dv)] {
            self.put(to, from, [b, kh], keys);
        }
    }

    /// One head's block of scores, recomputed, and what it adds to all three gradients.
    fn head_block(&self, scratch: &mut Scratch, [b, kh, g]: [usize; 3], [queries, keys]: [[usize; 2]; 2], turn: Turn) {
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
        self.order.wait(turn);
        // SAFETY: `base` found the rows inside dq; the heads of this group and these queries belong to whoever has
        // the turn.
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
        let Scratch { probabilities, dscores, keys_transposed, values_transposed, .. } = scratch;
        let out = self.layout.queries(self.saved.out, [b, self.head(kh, g), queries[0]]);
        multiply_into(probabilities, n, q, &keys_transposed[..across], [m, n, head_dim], [scale, 0.0]);
        multiply_into(dscores, n, dout, &values_transposed[..across], [m, n, head_dim], [1.0, 0.0]);
        for i in 0..m {
            let t = queries[0] + i;
            let lse = self.saved.lse[(b * length + t) * heads + self.head(kh, g)];
            let visible = self.layout.visible(self.from.segment_start, [b, t], keys);
            let delta = dot(&out.data[i * out.row..][..head_dim], &dout.data[i * dout.row..][..head_dim]);
            let rows = (&mut probabilities[i * n..][..n], &mut dscores[i * n..][..n]);
            score_gradients(rows.0, rows.1, visible, [lse, delta, scale]);
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

/// Whose turn it is to add to a block of dq.
#[derive(Clone, Copy)]
struct Turn {
    /// Row, key head and block of queries, as one number.
    place: usize,
    /// Block of keys: the turn comes when all blocks before have passed.
    block: usize,
}

/// How many blocks of keys have passed each place; `None` once a piece of work has panicked.
struct Order {
    passed: Mutex<Option<Vec<usize>>>,
    moved: Condvar,
}

impl Order {
    fn new(places: usize) -> Order {
        Order { passed: Mutex::new(Some(vec![0; places])), moved: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<usize>>> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn, and has it until [`Order::pass`].
    fn wait(&self, turn: Turn) {
        let early = |passed: &mut Option<Vec<usize>>| passed.as_ref().is_some_and(|p| p[turn.place] < turn.block);
        let passed = self.moved.wait_while(self.lock(), early).unwrap_or_else(PoisonError::into_inner);
        assert!(passed.is_some(), "attention::backward: another thread failed");
    }

    fn pass(&self, turn: Turn) {
        self.wait(turn);
        if let Some(passed) = self.lock().as_mut() {
            passed[turn.place] = turn.block + 1;
        }
        self.moved.notify_all();
    }
}

/// Lets nobody wait for a piece of work that panicked.
struct Alarm<'a>(&'a Order);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.lock() = None;
            self.0.moved.notify_all();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_fails_leaves_none_waiting_forever() {
        let order = Order::new(1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| order.wait(Turn { place: 0, block: 1 }));
            let fails = scope.spawn(|| {
                let _alarm = Alarm(&order);
                panic!("as a defect would");
            });
            assert!(fails.join().is_err() && waits.join().is_err());
        });
    }

    #[test]
    fn turns_come_in_the_order_of_the_blocks_of_keys() {
        let (order, seen) = (Order::new(2), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for block in (0..8).rev() {
                let (order, seen) = (&order, &seen);
                scope.spawn(move || {
                    let turn = Turn { place: 1, block };
                    order.wait(turn);
                    seen.lock().unwrap().push(block);
                    order.pass(turn);
                });
            }
        });
        assert_eq!(seen.into_inner().unwrap(), (0..8).collect::<Vec<_>>());
    }
}
