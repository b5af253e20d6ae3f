//! Launches `attention.cu`: a block a tile of 16 queries or keys, a head and a row.

use super::{Cache, Gradients, Inputs, Outputs, Shape};
use crate::Buffer;
use crate::cuda::{Argument, Grid, Launcher, arguments};

/// Queries, and keys, of a tile.
const TILE: usize = 16;

pub(super) fn forward(gpu: &Launcher<'_>, to: Outputs<'_>, from: Inputs<'_>, shape: Shape) {
    let Inputs { q, k, v, segment_start } = from;
    let pointers = [to.out, to.lse, q, k, v, segment_start].map(Argument::from);
    order_forward(gpu, pointers, 0, shape);
}

pub(super) fn decode(gpu: &Launcher<'_>, out: &Buffer, q: &Buffer, cache: Cache<'_>, shape: Shape) {
    let [out, q, k, v] = [out, q, cache.k, cache.v].map(Argument::from);
    let none = Argument::address(0);
    order_forward(gpu, [out, none, q, k, v, none], cache.past, shape);
}

fn order_forward(gpu: &Launcher<'_>, pointers: [Argument; 6], past: usize, shape: Shape) {
    let [out, lse, q, k, v, starts] = pointers;
    let [length, past, heads, kv_heads, head_dim] =
        [shape.length, past, shape.heads, shape.kv_heads, shape.head_dim].map(word);
    let arguments = arguments![out, lse, q, k, v, starts, length, past, heads, kv_heads, head_dim, shape.scale];
    gpu.launch("attention_forward", grid(shape, shape.heads, 3), arguments);
}

pub(super) fn backward(
    gpu: &Launcher<'_>,
    to: Gradients<'_>,
    from: Inputs<'_>,
    saved: Outputs<'_>,
    dout: &Buffer,
    shape: Shape,
) {
    let Inputs { q, k, v, segment_start: starts } = from;
    let Outputs { out, lse } = saved;
    let [length, heads, kv_heads, head_dim] = [shape.length, shape.heads, shape.kv_heads, shape.head_dim].map(word);
    let scale = shape.scale;
    gpu.queue.with_room(super::room_bytes(shape), |room| {
        let delta = Argument::address(room);
        let rows = lse.len();
        gpu.launch("attention_delta", Grid::row(rows.div_ceil(8)), arguments![delta, out, dout, rows, head_dim]);
        let arguments = arguments![to.dq, q, k, v, starts, lse, dout, delta, length, heads, kv_heads, head_dim, scale];
        gpu.launch("attention_backward_queries", grid(shape, shape.heads, 5), arguments);
        let arguments =
            arguments![to.dk, to.dv, q, k, v, starts, lse, dout, delta, length, heads, kv_heads, head_dim, scale];
        gpu.launch("attention_backward_keys", grid(shape, shape.kv_heads, 6), arguments);
    });
}

/// A block for each tile of a row, each head and each row, with shared memory for `tiles` tiles.
fn grid(shape: Shape, heads: usize, tiles: usize) -> Grid {
    let shared = word(tiles * TILE * (shape.head_dim + 1) * 4);
    Grid { blocks: [shape.length.div_ceil(TILE), heads, shape.rows], threads: [16, 16], shared }
}

#[track_caller]
fn word(n: usize) -> u32 {
    u32::try_from(n).unwrap_or_else(|_| panic!("attention: {n} is beyond 32 bits"))
}
