//! Loops over pieces; e^-x is the vectorised one.

use crate::simd::{PIECE, exp, vectorised};
use crate::team::Team;

pub(super) fn forward(team: &Team, out: &mut [f32], gate: &[f32], up: &[f32]) {
    team.split([out], [PIECE], |i, [out]| forward_piece(out, &gate[i * PIECE..], &up[i * PIECE..]));
}

pub(super) fn backward(team: &Team, gate: &mut [f32], up: &mut [f32], dout: &[f32]) {
    team.split([gate, up], [PIECE; 2], |i, [gate, up]| backward_piece(gate, up, &dout[i * PIECE..]));
}

vectorised! {
    fn forward_piece(out: &mut [f32], gate: &[f32], up: &[f32]) {
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    }

    fn backward_piece(gate: &mut [f32], up: &mut [f32], dout: &[f32]) {
        for ((gate, up), dout) in gate.iter_mut().zip(up).zip(dout) {
            let sigmoid = 1.0 / (1.0 + exp(-*gate));
            let dsilu = sigmoid * (1.0 + *gate * (1.0 - sigmoid));
            let dup = dout * (*gate * sigmoid);
            *gate = dout * *up * dsilu;
            *up = dup;
        }
    }
}
