//! The textbook: algorithm 2 of the paper, in the order of torch.

use super::Step;

/// p, m and v after the step.
pub(super) fn step([p, m, v]: [&[f64]; 3], g: &[f64], step: Step) -> [Vec<f64>; 3] {
    let Step { learning_rate, beta1, beta2, eps, weight_decay, .. } = step;
    let t = step.step as f64;
    let g = |i: usize| g[i] * f64::from(step.gradient_scale);
    let m: Vec<f64> = (0..p.len()).map(|i| beta1 * m[i] + (1.0 - beta1) * g(i)).collect();
    let v: Vec<f64> = (0..p.len()).map(|i| beta2 * v[i] + (1.0 - beta2) * g(i) * g(i)).collect();
    let move_of = |i: usize| (m[i] / (1.0 - beta1.powf(t))) / ((v[i] / (1.0 - beta2.powf(t))).sqrt() + eps);
    let p = (0..p.len()).map(|i| p[i] * (1.0 - learning_rate * weight_decay) - learning_rate * move_of(i)).collect();
    [p, m, v]
}
