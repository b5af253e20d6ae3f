//! Rows for the sum, columns for the bias's gradient.

use crate::simd::{rows_of, vectorised};
use crate::team::{Shared, Team};

/// Columns of the gradient that one thread takes at a time.
const COLUMNS: usize = 64;

/// Rows that are added up before they join the sum: shorter chains of roundings.
const GROUP: usize = 64;

pub(super) fn forward(team: &Team, y: &mut [f32], bias: &[f32]) {
    let width = bias.len();
    if y.is_empty() {
        return;
    }
    team.split([y], [rows_of(width) * width], |_, [y]| {
        y.chunks_exact_mut(width).for_each(|row| add_row(row, bias));
    });
}

pub(super) fn backward(team: &Team, dbias: &mut [f32], dy: &[f32]) {
    let width = dbias.len();
    if dy.is_empty() {
        return;
    }
    let dbias = Shared::new(dbias);
    team.for_work(dy.len()).each_with(
        width.div_ceil(COLUMNS),
        || (),
        |(), i| {
            let (start, end) = (i * COLUMNS, width.min((i + 1) * COLUMNS));
            // SAFETY: pieces are disjoint ranges of columns.
            let to = unsafe { dbias.slice(start, end) };
            dy.chunks(GROUP * width).for_each(|group| add_columns(to, &group[start..], width));
        },
    );
}

vectorised! {
    fn add_row(row: &mut [f32], bias: &[f32]) {
        row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
    }

    /// Adds the columns of a group of rows, the first of which begins at `rows[0]`.
    fn add_columns(to: &mut [f32], rows: &[f32], width: usize) {
        let mut sums = [0.0; COLUMNS];
        let sums = &mut sums[..to.len()];
        for row in rows.chunks(width) {
            sums.iter_mut().zip(row).for_each(|(sum, dy)| *sum += dy);
        }
        to.iter_mut().zip(sums).for_each(|(to, sum)| *to += *sum);
    }
}
