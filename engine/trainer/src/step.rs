//! One optimizer step, in the order of the textbook. Read this first.
//!
//! Not here: the model (`model`), which rows a step takes (`batch`), the clock (the `run` verb measures a step's wall time).

use crate::batch::{MicroBatch, Order, RowSource, micro_batches, positions};
use crate::guard::{Guard, Verdict};
use crate::model::parameter::Parameter;
use crate::optimizer::AdamW;
use crate::schedule;
use kernels::Stream;
use protocol::plan::Plan;
use protocol::{Code, Outcome, Problem, event};

/// What a step needs of a model.
pub trait Learner {
    /// Order of work on its device.
    fn stream(&self) -> &Stream;
    /// What moves.
    fn parameters(&self) -> &[Parameter];
    /// Sets gradients and sums to zero.
    fn clear(&mut self) -> Outcome<()>;
    /// Forward and backward: adds the gradient of Σ nll / `targets`, `targets` being those of the whole step.
    fn learn(&mut self, batch: &MicroBatch, step: u64, targets: u64) -> Outcome<()>;
    /// Adds up gradients and sums over all ranks: afterwards each rank has those of the whole step.
    fn share(&mut self) -> Outcome<()>;
    /// Loss and gradient norm of what was learnt since `clear`. Waits for the device.
    fn measure(&mut self, targets: u64) -> Outcome<Measured>;
}

/// What the guard looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Σ nll / targets, in nats.
    pub loss: f64,
    /// L2 norm over all gradients, before clipping.
    pub grad_norm: f64,
}

/// Where a run is. All of it goes into checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Steps done, those left out included.
    pub step: u64,
    /// Steps that moved the weights.
    pub updates: u64,
    /// Steps left out.
    pub skipped: u64,
    /// Tokens trained on, padding excluded.
    pub tokens: u64,
    /// Judges the next step.
    pub guard: Guard,
}

/// What a step was.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutcome {
    /// The weights moved.
    Done(Done),
    /// The weights did not move.
    Skipped {
        /// The step, from 1.
        step: u64,
        /// What was wrong with it.
        problem: Problem,
    },
}

/// A step that moved the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    /// The step, from 1.
    pub step: u64,
    /// Loss and gradient norm.
    pub measured: Measured,
    /// Rate it used.
    pub learning_rate: f64,
    /// Target tokens.
    pub targets: u64,
    /// Its tokens, padding excluded.
    pub step_tokens: u64,
    /// Tokens trained on so far in the run.
    pub tokens: u64,
    /// Epochs done.
    pub epoch: f64,
}

impl Done {
    /// The event of a step that took `seconds`.
    pub fn event(&self, seconds: f64) -> event::Step {
        event::Step {
            step: self.step,
            loss: self.measured.loss,
            grad_norm: self.measured.grad_norm,
            learning_rate: self.learning_rate,
            targets: self.targets,
            tokens: self.tokens,
            epoch: self.epoch,
            step_ms: seconds * 1e3,
            tokens_per_second: self.step_tokens as f64 / seconds.max(1e-9),
        }
    }
}

/// One step of `model`: draws rows, learns, judges, moves.
///
/// Errors: `NotFinite` when the guard ends the run; `DataChanged` when the rows do not fit the plan. Neither moves a weight.
pub fn step(
    model: &mut dyn Learner,
    optimizer: &mut AdamW,
    rows: &dyn RowSource,
    plan: &Plan,
    rank: u32,
    progress: &mut Progress,
    batch: &mut MicroBatch,
) -> Outcome<StepOutcome> {
    let step = progress.step;
    let order = Order::new(rows.rows(), plan.run.seed);
    let drawn = positions(&plan.run, step);
    let (targets, tokens) = count(rows, &order, drawn.clone());

    model.clear()?;
    for part in micro_batches(drawn.clone(), plan.micro_batch, rank, plan.strategy.dp) {
        batch.fill(part.map(|p| (p, rows.row(order.row(p)))), plan.data.max_length as usize)?;
        model.learn(batch, step, targets.max(1))?;
    }
    model.share()?;
    let measured = model.measure(targets.max(1))?;

    progress.step += 1;
    let verdict = if targets == 0 { Verdict::Skip(no_targets(step + 1)) } else { judge(progress, measured) };
    match verdict {
        Verdict::Proceed => {}
        Verdict::Skip(problem) => {
            progress.skipped += 1;
            return Ok(StepOutcome::Skipped { step: step + 1, problem });
        }
        Verdict::Halt(problem) => return Err(problem),
    }
    let learning_rate = schedule::rate(&plan.schedule, plan.optimizer.learning_rate, step);
    let gradient_scale = clip_factor(measured.grad_norm, plan.optimizer.clip);
    progress.updates += 1;
    progress.tokens += tokens;
    optimizer.update(model.stream(), model.parameters(), progress.updates, learning_rate, gradient_scale);
    let epoch = drawn.end as f64 / rows.rows().max(1) as f64;
    let (step, tokens_so_far) = (progress.step, progress.tokens);
    let done = Done { step, measured, learning_rate, targets, step_tokens: tokens, tokens: tokens_so_far, epoch };
    Ok(StepOutcome::Done(done))
}

/// Targets and tokens of all rows of a step, over all ranks: what the loss is divided by.
fn count(rows: &dyn RowSource, order: &Order, drawn: std::ops::Range<u64>) -> (u64, u64) {
    drawn
        .map(|p| rows.row(order.row(p)))
        .fold((0, 0), |(targets, tokens), row| (targets + row.targets(), tokens + row.tokens.len() as u64))
}

fn judge(progress: &mut Progress, measured: Measured) -> Verdict {
    progress.guard.judge(progress.step, measured.loss, measured.grad_norm)
}

fn no_targets(step: u64) -> Problem {
    Problem::new(Code::NoUsableRows, format!("no token of step {step} is a target"))
        .kept("weights and optimizer state are as before this step")
        .remedy("the step was left out; look at the data if this repeats")
}

/// What gradients are multiplied by so that their global norm is at most `clip` (0 = no clipping), as
/// `torch.nn.utils.clip_grad_norm_` does.
pub fn clip_factor(grad_norm: f64, clip: f64) -> f32 {
    if clip > 0.0 { (clip / (grad_norm + 1e-6)).min(1.0) as f32 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Golden, golden};
    use serde_json::Value;

    #[test]
    fn clipping_is_that_of_torch() {
        let text = std::fs::read(golden("optim/clip.json")).unwrap();
        let all: Value = serde_json::from_slice(&text).unwrap();
        let two = all["cases"].as_array().unwrap().iter().filter(|c| c["norm_type"] == 2);
        let mut clipped = 0;
        for case in two {
            let (norm, max) = (case["total_norm"].as_f64().unwrap(), case["max_norm"].as_f64().unwrap());
            let factor = f64::from(clip_factor(norm, max));
            assert!(factor * norm <= max && (factor == 1.0) == (norm + 1e-6 <= max), "{case}");
            clipped += u32::from(factor < 1.0);
        }
        assert!(clipped >= 3);
    }

    #[test]
    fn every_clipped_gradient_is_that_of_torch() {
        let all: Value = serde_json::from_slice(&std::fs::read(golden("optim/clip.json")).unwrap()).unwrap();
        let (problem, clipped) = (Golden::open("optim/problem.safetensors"), Golden::open("optim/clip.safetensors"));
        let mut compared = 0;
        for case in all["cases"].as_array().unwrap().iter().filter(|c| c["norm_type"] == 2) {
            let (key, step) = (case["key"].as_str().unwrap(), case["step"].as_u64().unwrap() as usize);
            let gradient = |name: &str| {
                let all = problem.f32(&format!("grad.{name}"));
                let size = all.len() / problem.shape(&format!("grad.{name}"))[0];
                all[step * size..][..size].to_vec()
            };
            let square = |x: &f32| f64::from(*x).powi(2);
            let norm = ["b", "v", "w"].iter().flat_map(|name| gradient(name)).map(|x| square(&x)).sum::<f64>().sqrt();
            let wanted = case["total_norm"].as_f64().unwrap();
            assert!((norm - wanted).abs() <= 1e-6 * wanted, "{key}: {norm} and {wanted}");
            let factor = clip_factor(norm, case["max_norm"].as_f64().unwrap());
            for name in ["b", "v", "w"] {
                let wanted = clipped.f32(&format!("{key}.{name}"));
                let found: Vec<f32> = gradient(name).iter().map(|x| x * factor).collect();
                assert_eq!(found.len(), wanted.len());
                let far = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-6 * b.abs() + 1e-9;
                assert!(!found.iter().zip(&wanted).any(far), "{key}.{name}: {found:?}, torch {wanted:?}");
                compared += 1;
            }
        }
        let of_two = clipped.names().iter().filter(|name| name.contains(".l2.")).count();
        assert!(compared == of_two && compared >= 20, "{compared} of {of_two}");
    }

    #[test]
    fn a_clip_of_zero_means_none() {
        assert_eq!((clip_factor(1e9, 0.0), clip_factor(2.0, 1.0)), (1.0, 0.499_999_75));
    }
}
