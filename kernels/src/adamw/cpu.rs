//! One pass: seven streams of memory for some twenty operations an element, so memory decides.

use super::Step;
use crate::simd::{PIECE, vectorised};
use crate::team::Team;

pub(super) fn step(team: &Team, state: [&mut [f32]; 3], g: &[f32], step: Step) {
    let factors = Factors::of(step);
    team.split(state, [PIECE; 3], |i, [p, m, v]| step_piece(p, m, v, &g[i * PIECE..], factors));
}

/// What the inner loop multiplies with: computed in f64 once a step, as torch does, then rounded.
#[derive(Clone, Copy)]
struct Factors {
    gradient_scale: f32,
    keep: f32,
    first: f32,
    beta2: f32,
    second: f32,
    root: f32,
    eps: f32,
    size: f32,
}

impl Factors {
    fn of(step: Step) -> Factors {
        let power = |beta: f64| beta.powf(step.step as f64);
        Factors {
            gradient_scale: step.gradient_scale,
            keep: (1.0 - step.learning_rate * step.weight_decay) as f32,
            first: (1.0 - step.beta1) as f32,
            beta2: step.beta2 as f32,
            second: (1.0 - step.beta2) as f32,
            root: (1.0 - power(step.beta2)).sqrt() as f32,
            eps: step.eps as f32,
            size: (step.learning_rate / (1.0 - power(step.beta1))) as f32,
        }
    }
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
