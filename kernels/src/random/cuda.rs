//! Launches `random.cu`.

use super::Draw;
use crate::Buffer;
use crate::cuda::{Launcher, arguments};

pub(super) fn normal(gpu: &Launcher<'_>, x: &Buffer, mean: f32, std: f32, draw: Draw) {
    let [key0, key1] = draw.key();
    let counters = x.len().div_ceil(32) * 8;
    gpu.each("random_normal", counters, arguments![x, x.len(), mean, std, key0, key1]);
}
