//! Launches `dropout.cu`.

use super::Dropout;
use crate::Buffer;
use crate::cuda::{Launcher, arguments};

/// Either pass: writes or adds to `to`.
pub(super) fn run(gpu: &Launcher<'_>, kernel: &str, to: &Buffer, from: &Buffer, dropout: Dropout) {
    let Dropout { draw, first_sample, length, width, .. } = dropout;
    let tokens = to.len().checked_div(width).unwrap_or(0);
    let ([key0, key1], below, scale) = (draw.key(), dropout.below(), dropout.factor());
    let counters = tokens * width.div_ceil(32) * 8;
    gpu.each(kernel, counters, arguments![to, from, tokens, length, width, first_sample, key0, key1, below, scale]);
}
