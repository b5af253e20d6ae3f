//! Elementwise loops: bound by memory, so plain loops over pieces.

use crate::simd::{PIECE, vectorised};
use crate::team::Team;

pub(super) fn add(team: &Team, y: &mut [f32], x: &[f32]) {
    team.split([y], [PIECE], |i, [y]| add_piece(y, &x[i * PIECE..]));
}

pub(super) fn axpy(team: &Team, y: &mut [f32], alpha: f32, x: &[f32]) {
    team.split([y], [PIECE], |i, [y]| axpy_piece(y, alpha, &x[i * PIECE..]));
}

pub(super) fn scale(team: &Team, x: &mut [f32], alpha: f32) {
    team.split([x], [PIECE], |_, [x]| scale_piece(x, alpha));
}

pub(super) fn fill(team: &Team, x: &mut [f32], value: f32) {
    team.split([x], [PIECE], |_, [x]| x.fill(value));
}

pub(super) fn copy(team: &Team, to: &mut [f32], from: &[f32]) {
    team.split([to], [PIECE], |i, [to]| to.copy_from_slice(&from[i * PIECE..][..to.len()]));
}

vectorised! {
    fn add_piece(y: &mut [f32], x: &[f32]) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
    }

    fn axpy_piece(y: &mut [f32], alpha: f32, x: &[f32]) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += alpha * x);
    }

    fn scale_piece(x: &mut [f32], alpha: f32) {
        x.iter_mut().for_each(|x| *x *= alpha);
    }
}
