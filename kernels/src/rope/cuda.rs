//! Launches `rope.cu`.

use crate::Buffer;
use crate::cuda::{Launcher, arguments};

pub(super) fn turn(
    gpu: &Launcher<'_>,
    x: &Buffer,
    positions: &Buffer,
    inv_freq: &Buffer,
    heads: usize,
    [cosines, sines]: [f32; 2],
) {
    let (tokens, half) = (positions.len(), inv_freq.len());
    gpu.each("rope_turn", tokens * half, arguments![x, positions, inv_freq, tokens, heads, half, cosines, sines]);
}
