//! A row at a time: the largest logit, then one exponential an element, kept in place where the gradient is wanted.

use super::IGNORE;
use crate::simd::{self, exp, rows_of, sum_of, vectorised};
use crate::team::Team;

/// Elements whose exponentials are added in f32 lanes; the blocks' sums are added in f64.
const BLOCK: usize = 4096;

pub(super) fn forward(team: &Team, nll: &mut [f32], logits: &[f32], targets: &[u32], vocab: usize) {
    let rows = rows_of(vocab);
    team.split([nll], [rows], |i, [nll]| {
        for (nll, n) in nll.iter_mut().zip(i * rows..) {
            *nll = if targets[n] == IGNORE { 0.0 } else { loss(&logits[n * vocab..][..vocab], targets[n]) };
        }
    });
}

pub(super) fn forward_backward(
    team: &Team,
    nll: &mut [f32],
    logits: &mut [f32],
    targets: &[u32],
    vocab: usize,
    scale: f32,
) {
    if vocab == 0 {
        return nll.fill(f32::NAN);
    }
    let rows = rows_of(vocab);
    team.split([nll, logits], [rows, rows * vocab], |i, [nll, logits]| {
        for ((nll, row), target) in nll.iter_mut().zip(logits.chunks_exact_mut(vocab)).zip(&targets[i * rows..]) {
            *nll = if *target == IGNORE { ignore(row) } else { row_backward(row, *target, scale) };
        }
    });
}

fn ignore(row: &mut [f32]) -> f32 {
    row.fill(0.0);
    0.0
}

fn row_backward(row: &mut [f32], target: u32, scale: f32) -> f32 {
    let target = target as usize;
    let Some(logit) = row.get(target).copied() else {
        row.fill(f32::NAN);
        return f32::NAN;
    };
    let max = largest(row);
    let sum = exp_in_place(row, max);
    scale_row(row, (f64::from(scale) / sum) as f32);
    row[target] -= scale;
    (sum.ln() + f64::from(max) - f64::from(logit)) as f32
}

fn loss(row: &[f32], target: u32) -> f32 {
    let Some(logit) = row.get(target as usize).copied() else { return f32::NAN };
    let max = largest(row);
    (sum_exp(row, max).ln() + f64::from(max) - f64::from(logit)) as f32
}

fn sum_exp(row: &[f32], max: f32) -> f64 {
    row.chunks(BLOCK).map(|block| f64::from(sum_exp_block(block, max))).sum()
}

fn exp_in_place(row: &mut [f32], max: f32) -> f64 {
    row.chunks_mut(BLOCK).map(|block| f64::from(exp_block(block, max))).sum()
}

vectorised! {
    fn largest(row: &[f32]) -> f32 {
        simd::largest(row)
    }

    fn sum_exp_block(block: &[f32], max: f32) -> f32 {
        sum_of([block], |[x]| exp(x - max))
    }

    fn exp_block(block: &mut [f32], max: f32) -> f32 {
        block.iter_mut().for_each(|x| *x = exp(*x - max));
        sum_of([block], |[x]| x)
    }

    fn scale_row(row: &mut [f32], by: f32) {
        row.iter_mut().for_each(|x| *x *= by);
    }
}
