//! Launches `bias.cu`.

use crate::Buffer;
use crate::cuda::{Grid, Launcher, arguments};

pub(super) fn forward(gpu: &Launcher<'_>, y: &Buffer, bias: &Buffer) {
    gpu.each("bias_forward", y.len(), arguments![y, bias, y.len(), bias.len()]);
}

pub(super) fn backward(gpu: &Launcher<'_>, dbias: &Buffer, dy: &Buffer) {
    if dy.is_empty() {
        return;
    }
    let width = dbias.len();
    let grid = Grid { blocks: [width.div_ceil(32), 1, 1], threads: [32, 16], shared: 0 };
    gpu.launch("bias_backward", grid, arguments![dbias, dy, dy.len() / width, width]);
}
