//! Random numbers without a state: a function of a key and a counter (Philox 4x32-10, Salmon et al., 2011).

mod cpu;
mod cuda;
mod philox;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub(crate) use philox::{WIDTH, philox};

use crate::stream::Arguments;
use crate::{Buffer, Stream};

/// What random numbers are for. Two draws that differ anywhere are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The run's seed.
    pub seed: u64,
    /// What for: one number a use (which tensor is initialised, which layer's dropout).
    pub purpose: u32,
    /// Optimizer step, or 0.
    pub step: u64,
}

/// `x = mean + std · z`, z normally distributed (Box and Muller, 1958); element i is a function of the draw and i.
#[track_caller]
pub fn normal(stream: &Stream, x: &Buffer, mean: f32, std: f32, draw: Draw) {
    let arguments = Arguments { reads: [], indices: [], writes: [x] };
    if let Some(gpu) = stream.cuda("random::normal", &arguments) {
        return cuda::normal(&gpu, x, mean, std, draw);
    }
    stream.launch("random::normal", arguments, move |team, [], [], [x]| cpu::normal(team, x, mean, std, draw));
}
