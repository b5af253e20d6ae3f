//! Launches `rms_norm.cu`.

use super::Saved;
use crate::Buffer;
use crate::cuda::{Grid, Launcher, arguments};

pub(super) fn forward(gpu: &Launcher<'_>, out: &Buffer, rstd: &Buffer, x: &Buffer, weight: &Buffer, eps: f32) {
    if !out.is_empty() {
        let arguments = arguments![out, rstd, x, weight, weight.len(), eps];
        gpu.launch("rms_norm_forward", Grid::row(rstd.len()), arguments);
    }
}

pub(super) fn backward(
    gpu: &Launcher<'_>,
    [dx, dweight]: [&Buffer; 2],
    saved: Saved<'_>,
    dout: &Buffer,
    accumulate: bool,
) {
    let Saved { x, weight, rstd } = saved;
    let (rows, width) = (rstd.len(), weight.len());
    if dx.is_empty() {
        return;
    }
    if !dweight.is_empty() {
        let grid = Grid { blocks: [width.div_ceil(32), 1, 1], threads: [32, 16], shared: 0 };
        gpu.launch("rms_norm_weight", grid, arguments![dweight, x, rstd, dout, rows, width]);
    }
    let arguments = arguments![dx, x, weight, rstd, dout, width, u32::from(accumulate)];
    gpu.launch("rms_norm_backward", Grid::row(rows), arguments);
}
