//! What this machine reaches, for the benchmark verb. The only place in this crate that reads a clock.
//!
//! Not here: what a reached number is compared with, and training steps (crate `trainer`).

use crate::matmul::{self, Orientation, Shape};
use crate::{AllocError, Buffer, DType, Device, Stream, elementwise};
use std::time::Instant;

/// Billions of floating point operations a second (2·m·n·k a product) that a matrix product reaches: the best of
/// `repeats` runs after one to warm up.
///
/// # Errors
/// When the operands find no memory on the device.
pub fn gemm(device: &Device, orientation: Orientation, shape: Shape, repeats: usize) -> Result<f64, AllocError> {
    let Shape { m, n, k } = shape;
    let (out, a, b) =
        (device.alloc(m * n, DType::F32)?, device.alloc(m * k, DType::F32)?, device.alloc(n * k, DType::F32)?);
    let stream = device.stream();
    [&a, &b].iter().for_each(|x| elementwise::fill(&stream, x, 0.5));
    let seconds = best(&stream, repeats, || matmul::product(&stream, orientation, &out, [&a, &b], shape, [1.0, 0.0]));
    Ok(2.0 * m as f64 * n as f64 * k as f64 / seconds / 1e9)
}

/// Gigabytes a second that memory gives: bytes read and written by `y += alpha · x` over two buffers of `len` elements.
/// `len` should be far beyond the caches.
///
/// # Errors
/// When the buffers find no memory on the device.
pub fn memory(device: &Device, len: usize, repeats: usize) -> Result<f64, AllocError> {
    let (y, x): (Buffer, Buffer) = (device.alloc(len, DType::F32)?, device.alloc(len, DType::F32)?);
    let stream = device.stream();
    let seconds = best(&stream, repeats, || elementwise::axpy(&stream, &y, 0.5, &x));
    Ok(12.0 * len as f64 / seconds / 1e9)
}

/// Seconds of the fastest of `repeats` runs (at least one) of `work`, waiting included, after one run to warm up.
pub fn best(stream: &Stream, repeats: usize, mut work: impl FnMut()) -> f64 {
    let mut once = || {
        let start = Instant::now();
        work();
        stream.synchronise();
        start.elapsed().as_secs_f64()
    };
    once();
    (0..repeats.max(1)).map(|_| once()).fold(f64::INFINITY, f64::min)
}
