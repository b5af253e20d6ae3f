//! Both passes over packed rows, and generation over a cache.

use super::{Cache, Gradients, Inputs, Outputs, Shape, backward, decode, forward, reference};
use crate::testing::{Bench, close, every_backend, gradient, inner, integers, uniform, wide};

/// Rows, length, query heads, key heads, head dim.
const SHAPES: [[usize; 5]; 8] = [
    [1, 1, 1, 1, 2],
    [2, 5, 2, 1, 4],
    [1, 97, 3, 3, 7],
    [3, 40, 6, 2, 16],
    [1, 200, 4, 2, 33],
    [2, 130, 2, 2, 64],
    [1, 300, 3, 1, 20],
    [0, 5, 2, 1, 4],
];

fn shape([rows, length, heads, kv_heads, head_dim]: [usize; 5]) -> Shape {
    Shape { rows, length, heads, kv_heads, head_dim, scale: 1.0 / (head_dim as f32).sqrt() }
}

struct Values {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    dout: Vec<f32>,
    starts: Vec<u32>,
}

impl Values {
    /// Packed rows: samples start at random, each token sees from its sample's start on.
    fn of(shape: Shape) -> Values {
        let n = shape.rows * shape.length;
        let (heads, keys) = (n * shape.heads * shape.head_dim, n * shape.kv_heads * shape.head_dim);
        let mut starts: Vec<u32> = Vec::new();
        for (i, draw) in integers(n, 23, 5).into_iter().enumerate() {
            let t = i % shape.length;
            let before = if t == 0 { 0 } else { starts[i - 1] };
            starts.push(if draw == 0 { t as u32 } else { before });
        }
        let more = |len, seed| uniform(len, seed).iter().map(|x| 3.0 * x).collect();
        Values { q: more(heads, 1), k: more(keys, 2), v: uniform(keys, 3), dout: uniform(heads, 4), starts }
    }

    fn run(&self, on: &Bench, shape: Shape) -> Vec<Vec<f32>> {
        let [q, k, v, dout] = [&self.q, &self.k, &self.v, &self.dout].map(|x| on.of(x));
        let starts = on.of(&self.starts);
        let from = Inputs { q: &q, k: &k, v: &v, segment_start: &starts };
        let (out, lse) = (on.empty(q.len()), on.empty(shape.rows * shape.length * shape.heads));
        let saved = Outputs { out: &out, lse: &lse };
        forward(&on.stream, saved, from, shape);
        let [dq, dk, dv] = [&q, &k, &v].map(|like| on.empty(like.len()));
        backward(&on.stream, Gradients { dq: &dq, dk: &dk, dv: &dv }, from, saved, &dout, shape);
        on.read(&[&out, &dq, &dk, &dv])
    }
}

#[test]
fn both_passes_agree_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        for shape in SHAPES.map(shape) {
            let values = Values::of(shape);
            let results = backends.agree(|on| values.run(on, shape));
            let [q, k, v, dout] = [&values.q, &values.k, &values.v, &values.dout].map(|x| wide(x));
            let out = reference::forward(&q, &k, &v, &values.starts, shape);
            let (dq, dk, dv) = reference::backward([&q, &k, &v], &values.starts, &dout, shape);
            for (name, (got, wanted)) in ["out", "dq", "dk", "dv"].iter().zip(results.iter().zip([out, dq, dk, dv])) {
                close(&format!("{name} of {shape:?}"), got, &wanted, 2e-5);
            }
        }
    }
}

#[test]
fn the_reference_gradients_are_those_of_the_forward_pass() {
    let shape = shape([2, 4, 4, 2, 3]);
    let values = Values::of(shape);
    let [q, k, v, dout] = [&values.q, &values.k, &values.v, &values.dout].map(|x| wide(x));
    let starts = [0, 0, 2, 2, 0, 1, 1, 1];
    let (dq, dk, dv) = reference::backward([&q, &k, &v], &starts, &dout, shape);
    gradient("dq", &q, &dq, |q| inner(&reference::forward(q, &k, &v, &starts, shape), &dout));
    gradient("dk", &k, &dk, |k| inner(&reference::forward(&q, k, &v, &starts, shape), &dout));
    gradient("dv", &v, &dv, |v| inner(&reference::forward(&q, &k, v, &starts, shape), &dout));
}

/// What a sample's tokens become must not depend on its neighbours in a packed row: not by a bit.
#[test]
fn a_packed_neighbour_changes_nothing() {
    for backends in &every_backend() {
        let shape = shape([1, 150, 2, 1, 8]);
        let mut values = Values::of(shape);
        values.starts = (0..150).map(|t| if t < 60 { 0 } else { 60 }).collect();
        let before = backends.agree(|on| values.run(on, shape));
        (values.q[..60 * 16].iter_mut())
            .chain(&mut values.k[..60 * 8])
            .chain(&mut values.v[..60 * 8])
            .for_each(|x| *x += 1.0);
        let after = backends.agree(|on| values.run(on, shape));
        assert_ne!(before[0][..60 * 16], after[0][..60 * 16]);
        assert_eq!(before[0][60 * 16..], after[0][60 * 16..]);
    }
}

#[test]
fn tokens_that_come_one_by_one_read_as_all_at_once() {
    for backends in &every_backend() {
        for shape in [[1, 7, 2, 1, 4], [1, 230, 6, 2, 16]].map(shape) {
            let mut values = Values::of(shape);
            values.starts.fill(0);
            let Shape { length, heads, kv_heads, head_dim, scale, .. } = shape;
            let results = backends.agree(|on| {
                let [q, k, v] = [&values.q, &values.k, &values.v].map(|x| on.of(x));
                let out = on.empty(q.len());
                for (past, new) in [(0, length - 4), (length - 4, 3), (length - 1, 1)] {
                    let range = past * heads * head_dim..(past + new) * heads * head_dim;
                    let cache = Cache { k: &k, v: &v, past, heads, kv_heads, head_dim, scale };
                    decode(&on.stream, &out.slice(range.clone()), &q.slice(range), cache);
                }
                on.read(&[&out])
            });
            let [q, k, v] = [&values.q, &values.k, &values.v].map(|x| wide(x));
            close("out", &results[0], &reference::forward(&q, &k, &v, &values.starts, shape), 1e-5);
        }
    }
}

#[test]
fn a_token_that_sees_nothing_is_not_a_number() {
    for backends in &every_backend() {
        let results = backends.agree(|on| {
            let shape = shape([1, 2, 1, 1, 2]);
            let x = [on.of(&[1.0f32; 4]), on.of(&[1.0f32; 4]), on.of(&[1.0f32; 4])];
            let (out, lse) = (on.empty(4), on.empty(2));
            let from = Inputs { q: &x[0], k: &x[1], v: &x[2], segment_start: &on.of(&[0, 2]) };
            forward(&on.stream, Outputs { out: &out, lse: &lse }, from, shape);
            on.read(&[&out])
        });
        assert_eq!(results[0][..2], [1.0, 1.0]);
        assert!(results[0][2..].iter().all(|x| x.is_nan()), "{results:?}");
    }
}
