//! The gated feed-forward activation of Llama (Shazeer, 2020): `out = silu(gate) · up`, `silu(x) = x / (1 + e^-x)`.

mod cpu;
mod cuda;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// Writes `out_NF` from `gate_NF` and `up_NF`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn forward(stream: &Stream, out: &Buffer, gate: &Buffer, up: &Buffer) {
    expect("swiglu::forward", "gate", gate, &[out.len()]);
    expect("swiglu::forward", "up", up, &[out.len()]);
    let arguments = Arguments { reads: [gate, up], indices: [], writes: [out] };
    if let Some(gpu) = stream.cuda("swiglu::forward", &arguments) {
        return cuda::forward(&gpu, out, gate, up);
    }
    stream.launch("swiglu::forward", arguments, |team, [gate, up], [], [out]| cpu::forward(team, out, gate, up));
}

/// Turns `gate_NF` and `up_NF` **in place** into their gradients for `dout_NF`: a layer needs them no longer then, and
/// the two largest activations of a block need no second copy.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn backward(stream: &Stream, gate: &Buffer, up: &Buffer, dout: &Buffer) {
    expect("swiglu::backward", "gate", gate, &[dout.len()]);
    expect("swiglu::backward", "up", up, &[dout.len()]);
    let arguments = Arguments { reads: [dout], indices: [], writes: [gate, up] };
    if let Some(gpu) = stream.cuda("swiglu::backward", &arguments) {
        return cuda::backward(&gpu, gate, up, dout);
    }
    stream.launch("swiglu::backward", arguments, |team, [dout], [], [gate, up]| cpu::backward(team, gate, up, dout));
}
