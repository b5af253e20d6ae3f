//! Sums over a whole buffer, by a fixed tree: blocks of [`BLOCK`] elements in f32 lanes, the blocks' sums in f64.

mod cpu;
mod cuda;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// Elements whose sum is taken as one.
pub const BLOCK: usize = 4096;

/// `out_1 = Σ x`.
///
/// # Panics
/// When `out` is not one element.
#[track_caller]
pub fn sum(stream: &Stream, out: &Buffer, x: &Buffer) {
    expect("reduce::sum", "out", out, &[1]);
    let arguments = Arguments { reads: [x], indices: [], writes: [out] };
    if let Some(gpu) = stream.cuda("reduce::sum", &arguments) {
        return cuda::run(&gpu, "reduce_sum", out, x);
    }
    stream.launch("reduce::sum", arguments, |team, [x], [], [out]| out[0] = cpu::sum(team, x) as f32);
}

/// `out_1 = Σ x²`: not finite when any x is not, or when the sum itself leaves the range of f32.
///
/// # Panics
/// When `out` is not one element.
#[track_caller]
pub fn sum_of_squares(stream: &Stream, out: &Buffer, x: &Buffer) {
    expect("reduce::sum_of_squares", "out", out, &[1]);
    let arguments = Arguments { reads: [x], indices: [], writes: [out] };
    if let Some(gpu) = stream.cuda("reduce::sum_of_squares", &arguments) {
        return cuda::run(&gpu, "reduce_sum_of_squares", out, x);
    }
    stream.launch("reduce::sum_of_squares", arguments, |team, [x], [], [out]| {
        out[0] = cpu::sum_of_squares(team, x) as f32;
    });
}
