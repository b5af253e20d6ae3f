//! Launches `elementwise.cu`.

use crate::Buffer;
use crate::cuda::{Launcher, arguments};

pub(super) fn axpy(gpu: &Launcher<'_>, y: &Buffer, alpha: f32, x: &Buffer) {
    gpu.each("elementwise_axpy", y.len(), arguments![y, x, y.len(), alpha]);
}

pub(crate) fn scale(gpu: &Launcher<'_>, x: &Buffer, alpha: f32) {
    gpu.each("elementwise_scale", x.len(), arguments![x, x.len(), alpha]);
}

pub(crate) fn fill(gpu: &Launcher<'_>, x: &Buffer, value: f32) {
    gpu.each("elementwise_fill", x.len(), arguments![x, x.len(), value]);
}

pub(super) fn copy(gpu: &Launcher<'_>, to: &Buffer, from: &Buffer) {
    gpu.each("elementwise_copy", to.len(), arguments![to, from, to.len()]);
}
