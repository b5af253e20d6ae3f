//! Attention of new tokens over a cache of keys and values: what generation runs. Forward only, one sequence.

use super::{cpu, cuda};
use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// A sequence's keys and values so far, the new tokens' included, and the layer's sizes.
#[derive(Clone, Copy, Debug)]
pub struct Cache<'a> {
    /// Keys, `[capacity, K, E]`; rows beyond the new tokens are not read.
    pub k: &'a Buffer,
    /// Values, `[capacity, K, E]`.
    pub v: &'a Buffer,
    /// Tokens before the new ones.
    pub past: usize,
    /// H, a multiple of K.
    pub heads: usize,
    /// K.
    pub kv_heads: usize,
    /// E.
    pub head_dim: usize,
    /// What scores are multiplied by, as a rule 1/√E.
    pub scale: f32,
}

/// Writes `out_NHE` for N new tokens `q_NHE`; new token i sees the cached positions `0..=past + i`.
///
/// # Panics
/// As all operations, on lengths that do not fit; also when the cache has no room for the new tokens.
#[track_caller]
pub fn decode(stream: &Stream, out: &Buffer, q: &Buffer, cache: Cache<'_>) {
    let Cache { k, v, past, heads, kv_heads, head_dim, scale } = cache;
    let divides = kv_heads > 0 && heads.is_multiple_of(kv_heads);
    assert!(divides, "attention::decode: {heads} query heads cannot share {kv_heads} key heads evenly");
    let new = q.len().checked_div(heads * head_dim).unwrap_or(0);
    let capacity = k.len().checked_div(kv_heads * head_dim).unwrap_or(0);
    expect("attention::decode", "q", q, &[new, heads, head_dim]);
    expect("attention::decode", "out", out, &[new, heads, head_dim]);
    expect("attention::decode", "k", k, &[capacity, kv_heads, head_dim]);
    expect("attention::decode", "v", v, &[capacity, kv_heads, head_dim]);
    assert!(past + new <= capacity, "attention::decode: {past} + {new} tokens in a cache of {capacity}");
    let shape = super::Shape { rows: 1, length: new, heads, kv_heads, head_dim, scale };
    let arguments = Arguments { reads: [q, k, v], indices: [], writes: [out] };
    if let Some(gpu) = stream.cuda("attention::decode", &arguments) {
        return cuda::decode(&gpu, out, q, cache, shape);
    }
    stream.launch("attention::decode", arguments, move |team, [q, k, v], [], [out]| {
        cpu::decode(team, out, [q, k, v], past, shape);
    });
}
