//! Launches `cross_entropy.cu`.

use crate::Buffer;
use crate::cuda::{Grid, Launcher, arguments};
use crate::elementwise;

pub(super) fn forward(gpu: &Launcher<'_>, nll: &Buffer, logits: &Buffer, targets: &Buffer, vocab: usize) {
    gpu.launch("cross_entropy_forward", Grid::row(nll.len()), arguments![nll, logits, targets, vocab]);
}

pub(super) fn forward_backward(
    gpu: &Launcher<'_>,
    nll: &Buffer,
    logits: &Buffer,
    targets: &Buffer,
    vocab: usize,
    scale: f32,
) {
    if vocab == 0 {
        return elementwise::cuda::fill(gpu, nll, f32::NAN);
    }
    let arguments = arguments![nll, logits, targets, vocab, scale];
    gpu.launch("cross_entropy_forward_backward", Grid::row(nll.len()), arguments);
}
