//! Launches `reduce.cu`.

use super::BLOCK;
use crate::Buffer;
use crate::cuda::{Argument, Grid, Launcher, RUNS_MAX, arguments};

/// Either sum: the runs of `kernel`, then the sum of the runs.
pub(super) fn run(gpu: &Launcher<'_>, kernel: &str, out: &Buffer, x: &Buffer) {
    let blocks = x.len().div_ceil(BLOCK);
    let in_run = blocks.div_ceil(RUNS_MAX).max(1);
    let runs = blocks.div_ceil(in_run);
    gpu.queue.with_runs(|partial| {
        let partial = Argument::address(partial);
        gpu.launch(kernel, Grid::row(runs), arguments![partial, x, x.len(), in_run]);
        gpu.launch("reduce_runs", Grid::row(1), arguments![out, partial, runs as u32]);
    });
}
