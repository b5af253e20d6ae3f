//! The numbers of a step as the arithmetic wants them, the same on every backend.

use super::Step;

/// What the inner loop multiplies with: computed in f64 once a step, as torch does, then rounded.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub gradient_scale: f32,
    pub keep: f32,
    pub first: f32,
    pub beta2: f32,
    pub second: f32,
    pub root: f32,
    pub eps: f32,
    pub size: f32,
}

impl Factors {
    pub(super) fn of(step: Step) -> Factors {
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
