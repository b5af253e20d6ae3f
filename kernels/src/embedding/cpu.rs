//! Copies of rows; the gradient is split by columns, so that each element sees the tokens in order.

use crate::simd::rows_of;
use crate::team::{Shared, Team};

/// Columns of the gradient that one thread takes at a time: whole cache lines.
const COLUMNS: usize = 64;

pub(super) fn forward(team: &Team, out: &mut [f32], table: &[f32], ids: &[u32], width: usize) {
    if width == 0 {
        return;
    }
    let tokens = rows_of(width);
    team.split([out], [tokens * width], |i, [out]| {
        for (out, id) in out.chunks_exact_mut(width).zip(&ids[i * tokens..]) {
            match table.get(*id as usize * width..).and_then(|rest| rest.get(..width)) {
                Some(row) => out.copy_from_slice(row),
                None => out.fill(f32::NAN),
            }
        }
    });
}

pub(super) fn backward(team: &Team, dtable: &mut [f32], dout: &[f32], ids: &[u32], width: usize) {
    if width == 0 {
        return;
    }
    let entries = dtable.len() / width;
    if ids.iter().any(|id| *id as usize >= entries) {
        return dtable.fill(f32::NAN);
    }
    let dtable = Shared::new(dtable);
    team.for_work(width * ids.len()).each_with(
        width.div_ceil(COLUMNS),
        || (),
        |(), i| {
            let (start, end) = (i * COLUMNS, width.min((i + 1) * COLUMNS));
            for (id, dout) in ids.iter().zip(dout.chunks_exact(width)) {
                let row = *id as usize * width;
                // SAFETY: pieces are disjoint ranges of columns, and this piece holds one row of them at a time.
                let to = unsafe { dtable.slice(row + start, row + end) };
                to.iter_mut().zip(&dout[start..end]).for_each(|(to, dout)| *to += dout);
            }
        },
    );
}
