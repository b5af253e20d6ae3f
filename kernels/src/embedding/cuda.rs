//! Launches `embedding.cu`.

use crate::Buffer;
use crate::cuda::{Grid, Launcher, arguments};

pub(super) fn forward(gpu: &Launcher<'_>, out: &Buffer, table: &Buffer, ids: &Buffer, width: usize) {
    let entries = table.len().checked_div(width).unwrap_or(0);
    gpu.each("embedding_forward", out.len(), arguments![out, table, ids, ids.len(), width, entries]);
}

pub(super) fn backward(gpu: &Launcher<'_>, dtable: &Buffer, dout: &Buffer, ids: &Buffer, width: usize) {
    let entries = dtable.len().checked_div(width).unwrap_or(0);
    let n = ids.len();
    if width > 0 && n > 0 {
        gpu.launch("embedding_backward", Grid::row(n), arguments![dtable, dout, ids, n, width, entries]);
        gpu.each("embedding_spoil", dtable.len(), arguments![dtable, ids, n, dtable.len(), entries]);
    }
}
