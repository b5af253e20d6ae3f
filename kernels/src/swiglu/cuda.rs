//! Launches `swiglu.cu`.

use crate::Buffer;
use crate::cuda::{Launcher, arguments};

pub(super) fn forward(gpu: &Launcher<'_>, out: &Buffer, gate: &Buffer, up: &Buffer) {
    gpu.each("swiglu_forward", out.len(), arguments![out, gate, up, out.len()]);
}

pub(super) fn backward(gpu: &Launcher<'_>, gate: &Buffer, up: &Buffer, dout: &Buffer) {
    gpu.each("swiglu_backward", dout.len(), arguments![gate, up, dout, dout.len()]);
}
