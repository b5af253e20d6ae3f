//! Causal attention with grouped key and value heads, over packed rows.
//!
//! Token i of a row sees token j of the same row iff `segment_start[i] <= j <= i`; `segment_start` counts from the
//! start of the row, so that 0 everywhere is plain causal attention and packed samples do not see each other. A token
//! that sees nothing (a start beyond itself) has NaN for its output.
//!
//! No T × T matrix is kept: the forward pass keeps one logarithm of a sum a head and token (`lse`), and the backward
//! pass recomputes probabilities from it, block by block (Dao et al., 2022). Query head h reads key head `h / (H / K)`.

mod cpu;
mod cuda;
mod decode;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub use decode::{Cache, decode};

use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// Sizes of an attention layer. N = `rows` × `length`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// B.
    pub rows: usize,
    /// T.
    pub length: usize,
    /// H, a multiple of K.
    pub heads: usize,
    /// K.
    pub kv_heads: usize,
    /// E.
    pub head_dim: usize,
    /// What scores are multiplied by, as a rule 1/√E.
    pub scale: f32,
}

/// Buffers of the forward pass that attention reads.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Queries, `q_NHE`.
    pub q: &'a Buffer,
    /// Keys, `k_NKE`.
    pub k: &'a Buffer,
    /// Values, `v_NKE`.
    pub v: &'a Buffer,
    /// First visible position within the row, u32 `[N]`.
    pub segment_start: &'a Buffer,
}

/// What [`forward`] wrote and [`backward`] reads.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// `out_NHE`.
    pub out: &'a Buffer,
    /// Logarithm of the sum of the exponentiated scores, `lse_NH`.
    pub lse: &'a Buffer,
}

/// Gradients of the inputs; each is written, not added to.
#[derive(Clone, Copy, Debug)]
pub struct Gradients<'a> {
    /// `dq_NHE`.
    pub dq: &'a Buffer,
    /// `dk_NKE`.
    pub dk: &'a Buffer,
    /// `dv_NKE`.
    pub dv: &'a Buffer,
}

/// Writes `to.out` and `to.lse`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn forward(stream: &Stream, to: Outputs<'_>, from: Inputs<'_>, shape: Shape) {
    check("attention::forward", to, from, shape);
    let arguments =
        Arguments { reads: [from.q, from.k, from.v], indices: [from.segment_start], writes: [to.out, to.lse] };
    if let Some(gpu) = stream.cuda("attention::forward", &arguments) {
        return cuda::forward(&gpu, to, from, shape);
    }
    stream.launch("attention::forward", arguments, move |team, [q, k, v], [segment_start], [out, lse]| {
        cpu::forward(team, [out, lse], cpu::Inputs { q, k, v, segment_start }, shape);
    });
}

/// Writes the gradients of [`forward`] for `dout_NHE`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn backward(stream: &Stream, to: Gradients<'_>, from: Inputs<'_>, saved: Outputs<'_>, dout: &Buffer, shape: Shape) {
    check("attention::backward", saved, from, shape);
    for (name, gradient, like) in
        [("dq", to.dq, from.q), ("dk", to.dk, from.k), ("dv", to.dv, from.v), ("dout", dout, saved.out)]
    {
        expect("attention::backward", name, gradient, &[like.len()]);
    }
    let reads = [from.q, from.k, from.v, saved.out, saved.lse, dout];
    let arguments = Arguments { reads, indices: [from.segment_start], writes: [to.dq, to.dk, to.dv] };
    if let Some(gpu) = stream.cuda("attention::backward", &arguments) {
        return cuda::backward(&gpu, to, from, saved, dout, shape);
    }
    stream.launch("attention::backward", arguments, move |team, reads, [segment_start], writes| {
        let [q, k, v, out, lse, dout] = reads;
        cpu::backward(team, writes, cpu::Inputs { q, k, v, segment_start }, cpu::Saved { out, lse, dout }, shape);
    });
}

/// Room that the gradient needs on a CUDA stream, for [`Stream::reserve`]: a number for each token and head.
pub fn room_bytes(shape: Shape) -> u64 {
    4 * (shape.rows * shape.length * shape.heads) as u64
}

#[track_caller]
fn check(op: &str, to: Outputs<'_>, from: Inputs<'_>, shape: Shape) {
    let Shape { rows, length, heads, kv_heads, head_dim, .. } = shape;
    let divides = kv_heads > 0 && heads.is_multiple_of(kv_heads);
    assert!(divides, "{op}: {heads} query heads cannot share {kv_heads} key heads evenly");
    expect(op, "q", from.q, &[rows, length, heads, head_dim]);
    expect(op, "k", from.k, &[rows, length, kv_heads, head_dim]);
    expect(op, "v", from.v, &[rows, length, kv_heads, head_dim]);
    expect(op, "segment_start", from.segment_start, &[rows, length]);
    expect(op, "out", to.out, &[rows, length, heads, head_dim]);
    expect(op, "lse", to.lse, &[rows, length, heads]);
}
