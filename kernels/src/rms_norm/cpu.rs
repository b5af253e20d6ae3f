//! Rows for the output and the input's gradient, columns for the weight's gradient.

use crate::simd::{rows_of, sum_of, vectorised};
use crate::team::{Shared, Team};

/// Columns of the weight's gradient that one thread takes at a time.
const COLUMNS: usize = 64;

/// Tokens whose weight gradients are added up before they join the sum: shorter chains of roundings.
const GROUP: usize = 64;

pub(super) struct Saved<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub rstd: &'a [f32],
}

pub(super) fn forward(team: &Team, out: &mut [f32], rstd: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
    let width = weight.len();
    if out.is_empty() {
        return;
    }
    let tokens = rows_of(width);
    team.split([out, rstd], [tokens * width, tokens], |i, [out, rstd]| {
        let x = x[i * tokens * width..].chunks_exact(width);
        for ((out, rstd), x) in out.chunks_exact_mut(width).zip(rstd).zip(x) {
            *rstd = forward_row(out, x, weight, eps);
        }
    });
}

pub(super) fn backward(team: &Team, to: [&mut [f32]; 2], saved: Saved<'_>, dout: &[f32], accumulate: bool) {
    let [dx, dweight] = to;
    let Saved { x, weight, rstd } = saved;
    let width = weight.len();
    if dx.is_empty() {
        return;
    }
    if !dweight.is_empty() {
        weight_gradient(team, dweight, [x, dout], rstd);
    }
    let tokens = rows_of(width);
    team.split([dx], [tokens * width], |i, [dx]| {
        let rows = x[i * tokens * width..].chunks_exact(width).zip(dout[i * tokens * width..].chunks_exact(width));
        for ((dx, (x, dout)), rstd) in dx.chunks_exact_mut(width).zip(rows).zip(&rstd[i * tokens..]) {
            backward_row(dx, [x, dout, weight], *rstd, accumulate);
        }
    });
}

fn weight_gradient(team: &Team, dweight: &mut [f32], from: [&[f32]; 2], rstd: &[f32]) {
    let width = dweight.len();
    let dweight = Shared::new(dweight);
    team.for_work(width * rstd.len()).each_with(
        width.div_ceil(COLUMNS),
        || (),
        |(), i| {
            let (start, end) = (i * COLUMNS, width.min((i + 1) * COLUMNS));
            // SAFETY: pieces are disjoint ranges of columns.
            let to = unsafe { dweight.slice(start, end) };
            for (group, rstd) in rstd.chunks(GROUP).enumerate() {
                weight_gradient_group(to, from.map(|x| &x[group * GROUP * width + start..]), rstd, width);
            }
        },
    );
}

vectorised! {
    fn forward_row(out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) -> f32 {
        let mean = sum_of([x], |[x]| x * x) / x.len() as f32;
        let rstd = 1.0 / (mean + eps).sqrt();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            *out = weight * (x * rstd);
        }
        rstd
    }

    /// `dx = rstd · (w · dout - x · rstd² · mean(x · w · dout))`.
    fn backward_row(dx: &mut [f32], from: [&[f32]; 3], rstd: f32, accumulate: bool) {
        let n = dx.len();
        let [x, dout, weight] = from.map(|row| &row[..n]);
        let mean = sum_of([x, weight, dout], |[x, weight, dout]| x * (weight * dout)) / n as f32;
        let back = rstd * rstd * mean;
        if accumulate {
            (0..n).for_each(|i| dx[i] += rstd * (weight[i] * dout[i] - x[i] * back));
        } else {
            (0..n).for_each(|i| dx[i] = rstd * (weight[i] * dout[i] - x[i] * back));
        }
    }

    fn weight_gradient_group(to: &mut [f32], from: [&[f32]; 2], rstd: &[f32], width: usize) {
        let mut sums = [0.0; COLUMNS];
        let sums = &mut sums[..to.len()];
        for (token, rstd) in rstd.iter().enumerate() {
            let [x, dout] = from.map(|rows| &rows[token * width..][..sums.len()]);
            for ((sum, x), dout) in sums.iter_mut().zip(x).zip(dout) {
                *sum += dout * (x * rstd);
            }
        }
        to.iter_mut().zip(sums).for_each(|(to, sum)| *to += *sum);
    }
}
