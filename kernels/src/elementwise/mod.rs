//! One element at a time: add, axpy, scale, fill, copy.

mod cpu;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// `y += x`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn add(stream: &Stream, y: &Buffer, x: &Buffer) {
    expect("elementwise::add", "x", x, &[y.len()]);
    let arguments = Arguments { reads: [x], indices: [], writes: [y] };
    stream.launch("elementwise::add", arguments, |team, [x], [], [y]| cpu::add(team, y, x));
}

/// `y += alpha · x`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn axpy(stream: &Stream, y: &Buffer, alpha: f32, x: &Buffer) {
    expect("elementwise::axpy", "x", x, &[y.len()]);
    let arguments = Arguments { reads: [x], indices: [], writes: [y] };
    stream.launch("elementwise::axpy", arguments, move |team, [x], [], [y]| cpu::axpy(team, y, alpha, x));
}

/// `x *= alpha`.
#[track_caller]
pub fn scale(stream: &Stream, x: &Buffer, alpha: f32) {
    let arguments = Arguments { reads: [], indices: [], writes: [x] };
    stream.launch("elementwise::scale", arguments, move |team, [], [], [x]| cpu::scale(team, x, alpha));
}

/// `x = value`.
#[track_caller]
pub fn fill(stream: &Stream, x: &Buffer, value: f32) {
    let arguments = Arguments { reads: [], indices: [], writes: [x] };
    stream.launch("elementwise::fill", arguments, move |team, [], [], [x]| cpu::fill(team, x, value));
}

/// `to = from`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn copy(stream: &Stream, to: &Buffer, from: &Buffer) {
    expect("elementwise::copy", "from", from, &[to.len()]);
    let arguments = Arguments { reads: [from], indices: [], writes: [to] };
    stream.launch("elementwise::copy", arguments, |team, [from], [], [to]| cpu::copy(team, to, from));
}
