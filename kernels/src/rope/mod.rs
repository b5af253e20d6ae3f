//! Rotary position embedding (Su et al., 2021), in the halves layout of Hugging Face: element e of a head turns
//! together with element e + E/2, by the angle `position · inv_freq[e]`. Variants that stretch the context (linear,
//! Llama 3, YaRN) are other numbers in `inv_freq`; YaRN makes what was turned longer as well, by `scaling`.

mod cpu;
mod cuda;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// `inv_freq[e] = theta^(-2e/E)` for the E/2 pairs of a head: what [`forward`] reads, to be copied to a buffer once.
pub fn frequencies(head_dim: usize, theta: f64) -> Vec<f32> {
    (0..head_dim / 2).map(|e| theta.powf(-((2 * e) as f64) / head_dim as f64) as f32).collect()
}

/// Turns `x_NHE` in place and multiplies it by `scaling`: every head of token n by `positions_N[n]`. E is twice the length
/// of `inv_freq`, H follows.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn forward(stream: &Stream, x: &Buffer, positions: &Buffer, inv_freq: &Buffer, scaling: f32) {
    turn("rope::forward", stream, x, positions, inv_freq, [scaling, scaling]);
}

/// The gradient of [`forward`], in place: turns `dx_NHE` back and multiplies it by `scaling`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn backward(stream: &Stream, dx: &Buffer, positions: &Buffer, inv_freq: &Buffer, scaling: f32) {
    turn("rope::backward", stream, dx, positions, inv_freq, [scaling, -scaling]);
}

/// `factors` multiply cosines and sines.
#[track_caller]
fn turn(op: &'static str, stream: &Stream, x: &Buffer, positions: &Buffer, inv_freq: &Buffer, factors: [f32; 2]) {
    let row = positions.len() * 2 * inv_freq.len();
    let heads = x.len().checked_div(row).unwrap_or(0);
    expect(op, "x", x, &[positions.len(), heads, 2 * inv_freq.len()]);
    let arguments = Arguments { reads: [inv_freq], indices: [positions], writes: [x] };
    if let Some(gpu) = stream.cuda(op, &arguments) {
        return cuda::turn(&gpu, x, positions, inv_freq, heads, factors);
    }
    stream.launch(op, arguments, move |team, [inv_freq], [positions], [x]| {
        cpu::turn(team, x, positions, inv_freq, factors);
    });
}
