//! A bias of a linear layer: one number a column, added to every row.

mod cpu;
mod cuda;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// `y_NF += bias_F`, row by row. N follows.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn forward(stream: &Stream, y: &Buffer, bias: &Buffer) {
    expect("bias::forward", "y", y, &shape(y, bias));
    let arguments = Arguments { reads: [bias], indices: [], writes: [y] };
    if let Some(gpu) = stream.cuda("bias::forward", &arguments) {
        return cuda::forward(&gpu, y, bias);
    }
    stream.launch("bias::forward", arguments, |team, [bias], [], [y]| cpu::forward(team, y, bias));
}

/// The gradient of [`forward`] with respect to the bias: **adds** `Σ_n dy_NF` to `dbias_F`. That of y is `dy` itself.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn backward(stream: &Stream, dbias: &Buffer, dy: &Buffer) {
    expect("bias::backward", "dy", dy, &shape(dy, dbias));
    let arguments = Arguments { reads: [dy], indices: [], writes: [dbias] };
    if let Some(gpu) = stream.cuda("bias::backward", &arguments) {
        return cuda::backward(&gpu, dbias, dy);
    }
    stream.launch("bias::backward", arguments, |team, [dy], [], [dbias]| cpu::backward(team, dbias, dy));
}

/// [rows, columns], where the rows are whole.
fn shape(rows: &Buffer, columns: &Buffer) -> [usize; 2] {
    [rows.len().checked_div(columns.len()).unwrap_or(0), columns.len()]
}
