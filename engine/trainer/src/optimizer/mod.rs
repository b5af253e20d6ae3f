//! AdamW over the tensors that move: two moments each, one fused pass a tensor.
//!
//! Not here: the arithmetic (`kernels::adamw`), the learning rate (`schedule`), clipping (`step`).

use crate::arena::Arena;
use crate::model::parameter::Parameter;
use kernels::adamw::{self, State};
use kernels::{Buffer, Stream};
use plan::memory::slots;
use protocol::Outcome;
use protocol::plan::PlannedOptimizer;

/// The optimizer's state and settings.
pub struct AdamW {
    settings: PlannedOptimizer,
    /// exp_avg and exp_avg_sq of each parameter, in their order.
    moments: Vec<[Buffer; 2]>,
}

impl AdamW {
    /// Takes `<parameter>.exp_avg` and `.exp_avg_sq` from the arena, all zero.
    pub fn new(arena: &mut Arena, parameters: &[Parameter], settings: &PlannedOptimizer) -> Outcome<AdamW> {
        let moments = parameters.iter().map(|p| take(arena, p, settings)).collect::<Outcome<_>>()?;
        Ok(AdamW { settings: settings.clone(), moments })
    }

    /// Moves `parameters` by their gradients times `gradient_scale`; this is update `update` (from 1).
    pub fn update(
        &mut self,
        stream: &Stream,
        parameters: &[Parameter],
        update: u64,
        learning_rate: f64,
        gradient_scale: f32,
    ) {
        let [beta1, beta2] = self.settings.betas;
        for (p, [m, v]) in parameters.iter().zip(&self.moments) {
            let Some(gradient) = &p.gradient else { continue };
            let step = adamw::Step {
                learning_rate,
                beta1,
                beta2,
                eps: self.settings.eps,
                weight_decay: if p.decays() { self.settings.weight_decay } else { 0.0 },
                step: update,
                gradient_scale,
            };
            adamw::step(stream, State { p: &p.weight, m, v }, gradient, step);
        }
    }

    /// The state tensors as checkpoints name them, `<parameter>.<slot>`, with their buffers.
    pub fn state<'a>(
        &'a self,
        parameters: &'a [Parameter],
    ) -> impl Iterator<Item = (String, &'a Parameter, &'a Buffer)> {
        parameters.iter().zip(&self.moments).flat_map(move |(p, moments)| {
            let names = slots(self.settings.kind).iter().zip(moments);
            names.map(move |(slot, buffer)| (format!("{}.{slot}", p.tensor.name), p, buffer))
        })
    }
}

fn take(arena: &mut Arena, parameter: &Parameter, settings: &PlannedOptimizer) -> Outcome<[Buffer; 2]> {
    let mut slot = |i: usize| {
        let name = format!("{}.{}", parameter.tensor.name, slots(settings.kind)[i]);
        arena.take(&name, parameter.tensor.elements() as usize)
    };
    Ok([slot(0)?, slot(1)?])
}
