//! One element at a time: add, axpy, scale, fill, copy.

mod cpu;
pub(crate) mod cuda;
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
    if let Some(gpu) = stream.cuda("elementwise::add", &arguments) {
        return cuda::axpy(&gpu, y, 1.0, x);
    }
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
    if let Some(gpu) = stream.cuda("elementwise::axpy", &arguments) {
        return cuda::axpy(&gpu, y, alpha, x);
    }
    stream.launch("elementwise::axpy", arguments, move |team, [x], [], [y]| cpu::axpy(team, y, alpha, x));
}

/// `x *= alpha`.
#[track_caller]
pub fn scale(stream: &Stream, x: &Buffer, alpha: f32) {
    let arguments = Arguments { reads: [], indices: [], writes: [x] };
    if let Some(gpu) = stream.cuda("elementwise::scale", &arguments) {
        return cuda::scale(&gpu, x, alpha);
    }
    stream.launch("elementwise::scale", arguments, move |team, [], [], [x]| cpu::scale(team, x, alpha));
}

/// `x = value`.
#[track_caller]
pub fn fill(stream: &Stream, x: &Buffer, value: f32) {
    let arguments = Arguments { reads: [], indices: [], writes: [x] };
    if let Some(gpu) = stream.cuda("elementwise::fill", &arguments) {
        return cuda::fill(&gpu, x, value);
    }
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
    if let Some(gpu) = stream.cuda("elementwise::copy", &arguments) {
        return cuda::copy(&gpu, to, from);
    }
    stream.launch("elementwise::copy", arguments, |team, [from], [], [to]| cpu::copy(team, to, from));
}
