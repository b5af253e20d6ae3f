//! Dropout without a stored mask: whether an element stays is a function of the draw, the sample, the position in the
//! sample and the column, so that it depends on neither batch layout nor threads, and the backward pass asks again.

mod cpu;
mod cuda;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::random::Draw;
use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// One dropout of one layer in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability that an element is dropped, 0 ≤ rate < 1; the others are divided by `1 - rate`.
    pub rate: f32,
    /// Seed, purpose (which layer) and step.
    pub draw: Draw,
    /// Number of the first row's sample in the whole training; row b is sample `first_sample + b`.
    pub first_sample: u64,
    /// T: tokens of a row.
    pub length: usize,
    /// D: elements of a token.
    pub width: usize,
}

impl Dropout {
    /// Random words below this drop their element.
    fn below(self) -> u32 {
        (f64::from(self.rate) * 4_294_967_296.0) as u32
    }

    /// What stays is multiplied by this.
    fn factor(self) -> f32 {
        1.0 / (1.0 - self.rate)
    }
}

/// `out_ND = x_ND · mask / (1 - rate)`.
///
/// # Panics
/// As all operations, on lengths that do not fit; also on a rate outside 0..1.
#[track_caller]
pub fn forward(stream: &Stream, out: &Buffer, x: &Buffer, dropout: Dropout) {
    check("dropout::forward", out, x, dropout);
    let arguments = Arguments { reads: [x], indices: [], writes: [out] };
    if let Some(gpu) = stream.cuda("dropout::forward", &arguments) {
        return cuda::run(&gpu, "dropout_forward", out, x, dropout);
    }
    stream.launch("dropout::forward", arguments, move |team, [x], [], [out]| cpu::forward(team, out, x, dropout));
}

/// `dx_ND += dout_ND · mask / (1 - rate)`: the gradient of [`forward`] with the same numbers.
///
/// # Panics
/// As all operations, on lengths that do not fit; also on a rate outside 0..1.
#[track_caller]
pub fn backward(stream: &Stream, dx: &Buffer, dout: &Buffer, dropout: Dropout) {
    check("dropout::backward", dx, dout, dropout);
    let arguments = Arguments { reads: [dout], indices: [], writes: [dx] };
    if let Some(gpu) = stream.cuda("dropout::backward", &arguments) {
        return cuda::run(&gpu, "dropout_backward", dx, dout, dropout);
    }
    stream.launch("dropout::backward", arguments, move |team, [dout], [], [dx]| cpu::backward(team, dx, dout, dropout));
}

#[track_caller]
fn check(op: &str, to: &Buffer, from: &Buffer, Dropout { rate, length, width, .. }: Dropout) {
    assert!((0.0..1.0).contains(&rate), "{op}: a rate of {rate} is not in 0..1");
    let rows = to.len().checked_div(length * width).unwrap_or(0);
    expect(op, "to", to, &[rows, length, width]);
    expect(op, "from", from, &[rows, length, width]);
}
