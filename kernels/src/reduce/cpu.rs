//! Sums: lanes within a block, blocks in order within a run of blocks, runs in order.

use super::BLOCK;
use crate::simd::{sum_of, vectorised};
use crate::team::Team;

/// Elements that one thread takes at a time.
const RUN: usize = 16 * BLOCK;

pub(super) fn sum(team: &Team, x: &[f32]) -> f64 {
    over_runs(team, x, sum_block)
}

pub(super) fn sum_of_squares(team: &Team, x: &[f32]) -> f64 {
    over_runs(team, x, squares_block)
}

fn over_runs(team: &Team, x: &[f32], block: impl Fn(&[f32]) -> f32 + Sync) -> f64 {
    let mut runs = vec![0.0; x.len().div_ceil(RUN)];
    team.split([&mut runs], [1], |i, [run]| {
        let end = x.len().min((i + 1) * RUN);
        run[0] = x[i * RUN..end].chunks(BLOCK).map(|x| f64::from(block(x))).sum();
    });
    runs.iter().sum()
}

vectorised! {
    fn sum_block(x: &[f32]) -> f32 {
        sum_of([x], |[x]| x)
    }

    fn squares_block(x: &[f32]) -> f32 {
        sum_of([x], |[x]| x * x)
    }
}
