//! Launches `adamw.cu`.

use super::factors::Factors;
use super::{State, Step};
use crate::Buffer;
use crate::cuda::{Launcher, arguments};

pub(super) fn step(gpu: &Launcher<'_>, State { p, m, v }: State<'_>, g: &Buffer, step: Step) {
    let by = Factors::of(step);
    let factors = [by.gradient_scale, by.keep, by.first, by.beta2, by.second, by.root, by.eps, by.size];
    let [gradient_scale, keep, first, beta2, second, root, eps, size] = factors;
    let arguments = arguments![p, m, v, g, p.len(), gradient_scale, keep, first, beta2, second, root, eps, size];
    gpu.each("adamw_step", p.len(), arguments);
}
