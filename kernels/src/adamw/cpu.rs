//! One pass: seven streams of memory for some twenty operations an element, so memory decides.

use super::Step;
use super::factors::Factors;
use crate::simd::{PIECE, vectorised};
use crate::team::Team;

pub(super) fn step(team: &Team, state: [&mut [f32]; 3], g: &[f32], step: Step) {
    let factors = Factors::of(step);
    team.split(state, [PIECE; 3], |i, [p, m, v]| step_piece(p, m, v, &g[i * PIECE..], factors));
}

vectorised! {
    fn step_piece(p: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32], by: Factors) {
        for (((p, m), v), g) in p.iter_mut().zip(m).zip(v).zip(g) {
            let g = g * by.gradient_scale;
            *m += by.first * (g - *m);
            *v = by.beta2 * *v + by.second * (g * g);
            *p = by.keep * *p - by.size * (*m / (v.sqrt() / by.root + by.eps));
        }
    }
}
