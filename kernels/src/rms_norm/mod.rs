//! Root mean square normalisation (Zhang and Sennrich, 2019): `out = weight · x · rstd`, `rstd = 1 / √(mean(x²) + eps)`.

mod cpu;
mod cuda;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// Normalises each row of `x_ND` into `out_ND` and keeps `rstd_N` for the backward pass. D is the length of `weight_D`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn forward(stream: &Stream, out: &Buffer, rstd: &Buffer, x: &Buffer, weight: &Buffer, eps: f32) {
    let shape = [rstd.len(), weight.len()];
    expect("rms_norm::forward", "out", out, &shape);
    expect("rms_norm::forward", "x", x, &shape);
    let arguments = Arguments { reads: [x, weight], indices: [], writes: [out, rstd] };
    if let Some(gpu) = stream.cuda("rms_norm::forward", &arguments) {
        return cuda::forward(&gpu, out, rstd, x, weight, eps);
    }
    stream.launch("rms_norm::forward", arguments, move |team, [x, weight], [], [out, rstd]| {
        cpu::forward(team, out, rstd, x, weight, eps);
    });
}

/// What the backward pass reads.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    /// Input of the forward pass, `x_ND`.
    pub x: &'a Buffer,
    /// `weight_D`.
    pub weight: &'a Buffer,
    /// `rstd_N` as [`forward`] left it.
    pub rstd: &'a Buffer,
}

/// Gradients of [`forward`] for `dout_ND`: **adds** to `dweight_D` where one is given; **adds** to `dx_ND` when
/// `accumulate`, else writes it.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn backward(
    stream: &Stream,
    dx: &Buffer,
    dweight: Option<&Buffer>,
    saved: Saved<'_>,
    dout: &Buffer,
    accumulate: bool,
) {
    let Saved { x, weight, rstd } = saved;
    let shape = [rstd.len(), weight.len()];
    for (name, buffer) in [("dx", dx), ("x", x), ("dout", dout)] {
        expect("rms_norm::backward", name, buffer, &shape);
    }
    let none = dx.slice(0..0);
    let dweight = dweight.inspect(|d| expect("rms_norm::backward", "dweight", d, &shape[1..])).unwrap_or(&none);
    let arguments = Arguments { reads: [x, weight, rstd, dout], indices: [], writes: [dx, dweight] };
    if let Some(gpu) = stream.cuda("rms_norm::backward", &arguments) {
        return cuda::backward(&gpu, [dx, dweight], saved, dout, accumulate);
    }
    stream.launch("rms_norm::backward", arguments, move |team, reads, [], [dx, dweight]| {
        let [x, weight, rstd, dout] = reads;
        cpu::backward(team, [dx, dweight], cpu::Saved { x, weight, rstd }, dout, accumulate);
    });
}
