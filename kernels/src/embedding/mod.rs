//! Rows of a table by index: token embeddings, and any other gathering of rows.

mod cpu;
mod cuda;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// `out_ND[n] = table_VD[ids_N[n]]`. An id outside the table gives a row of NaN.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn forward(stream: &Stream, out: &Buffer, table: &Buffer, ids: &Buffer) {
    let width = width("embedding::forward", out, table, ids);
    let arguments = Arguments { reads: [table], indices: [ids], writes: [out] };
    if let Some(gpu) = stream.cuda("embedding::forward", &arguments) {
        return cuda::forward(&gpu, out, table, ids, width);
    }
    stream.launch("embedding::forward", arguments, move |team, [table], [ids], [out]| {
        cpu::forward(team, out, table, ids, width);
    });
}

/// `dtable_VD[ids_N[n]] += dout_ND[n]`, tokens in order for each element. An id outside the table makes the whole
/// gradient NaN, so that no guard overlooks it.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn backward(stream: &Stream, dtable: &Buffer, dout: &Buffer, ids: &Buffer) {
    let width = width("embedding::backward", dout, dtable, ids);
    let arguments = Arguments { reads: [dout], indices: [ids], writes: [dtable] };
    if let Some(gpu) = stream.cuda("embedding::backward", &arguments) {
        return cuda::backward(&gpu, dtable, dout, ids, width);
    }
    stream.launch("embedding::backward", arguments, move |team, [dout], [ids], [dtable]| {
        cpu::backward(team, dtable, dout, ids, width);
    });
}

/// D, from the rows and their number.
#[track_caller]
fn width(op: &str, rows: &Buffer, table: &Buffer, ids: &Buffer) -> usize {
    let width = rows.len().checked_div(ids.len()).unwrap_or(0);
    let entries = table.len().checked_div(width).unwrap_or(0);
    expect(op, "rows", rows, &[ids.len(), width]);
    if width > 0 {
        expect(op, "table", table, &[entries, width]);
    }
    width
}
