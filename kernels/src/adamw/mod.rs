//! AdamW (Loshchilov and Hutter, 2019) in one pass over parameters, gradient and both moments.

mod cpu;
mod cuda;
mod factors;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// The numbers of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled: parameters shrink by `learning_rate · weight_decay`, outside the moments.
    pub weight_decay: f64,
    /// Which update this is to these moments, from 1.
    pub step: u64,
    /// What each gradient is multiplied by first: clipping, and 1/targets where gradients are plain sums.
    pub gradient_scale: f32,
}

/// Parameters and their moments, all of one length.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// Parameters.
    pub p: &'a Buffer,
    /// First moment, zero before step 1.
    pub m: &'a Buffer,
    /// Second moment, zero before step 1.
    pub v: &'a Buffer,
}

/// Updates `state` in place from the gradient `g`, as `torch.optim.AdamW` does.
///
/// # Panics
/// As all operations, on lengths that do not fit; also when `step` is 0.
#[track_caller]
pub fn step(stream: &Stream, state: State<'_>, g: &Buffer, step: Step) {
    let State { p, m, v } = state;
    assert!(step.step > 0, "adamw: steps count from 1");
    for (name, buffer) in [("m", m), ("v", v), ("g", g)] {
        expect("adamw", name, buffer, &[p.len()]);
    }
    let arguments = Arguments { reads: [g], indices: [], writes: [p, m, v] };
    if let Some(gpu) = stream.cuda("adamw", &arguments) {
        return cuda::step(&gpu, state, g, step);
    }
    stream.launch("adamw", arguments, move |team, [g], [], state| cpu::step(team, state, g, step));
}
