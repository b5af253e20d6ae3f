//! One rank of a run: model, optimizer and its place in the data, all in the memory that the plan lists.
//!
//! Not here: processes, events and when to save (the `run` verb), files of a checkpoint (`checkpoint`), the threads of
//! several ranks (`ranks`).

use crate::arena::Arena;
use crate::batch::{MicroBatch, Row, RowSource};
use crate::model::{Model, TrainingOptions};
use crate::optimizer::AdamW;
use crate::step::{Learner, Progress, StepOutcome, step};
use crate::weights::WeightSource;
use formats::model_folder::SpecialIds;
use kernels::group::Group;
use kernels::{Device, Stream};
use protocol::plan::Plan;
use protocol::{Code, Outcome, Problem};
use serde::{Deserialize, Serialize};

/// A rank.
pub struct Rank {
    pub(crate) plan: Plan,
    rank: u32,
    pub(crate) model: Model,
    pub(crate) optimizer: AdamW,
    pub(crate) progress: Progress,
    pub(crate) best: Option<Best>,
    /// Ids that the first model's configuration names, carried into checkpoints.
    pub(crate) special_ids: SpecialIds,
    batch: MicroBatch,
}

/// The best evaluation so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// Steps done then.
    pub step: u64,
    /// Its mean loss.
    pub loss: f64,
}

/// Loss over a set of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean negative log-likelihood over the targets, in nats.
    pub loss: f64,
    /// exp(loss).
    pub perplexity: f64,
    /// Targets.
    pub targets: u64,
    /// True where the run had no lower loss before.
    pub is_best: bool,
}

impl Rank {
    /// Rank `rank` of a plan on its device, with weights from `weights` (`weights::first`, or the checkpoint's through
    /// [`Rank::restore`]). Keeps to `plan.memory.arena`.
    /// Errors: `OutOfMemory`, `NotSupported` for a layout or number format of a later version, those of `weights`.
    pub fn new(plan: &Plan, rank: u32, device: &Device, weights: &dyn WeightSource) -> Outcome<Rank> {
        check(plan, rank)?;
        let mut arena = Arena::new(device, &plan.memory.arena);
        let rows = plan.micro_batch as usize * plan.data.max_length as usize;
        let options = TrainingOptions { recompute: plan.recompute, seed: plan.run.seed };
        let model = Model::for_training(&mut arena, device, &plan.model.config, &plan.method, rows, options, weights)?;
        let optimizer = AdamW::new(&mut arena, model.parameters(), &plan.optimizer)?;
        if let Some(name) = arena.untaken().first() {
            return Err(Problem::internal(format!("the plan's arena lists {name}, which nothing uses")));
        }
        let (progress, batch) = (Progress::default(), MicroBatch::default());
        let special_ids = weights.special_ids();
        Ok(Rank { plan: plan.clone(), rank, model, optimizer, progress, best: None, special_ids, batch })
    }

    /// Order of work on its device.
    pub fn stream(&self) -> &Stream {
        self.model.stream()
    }

    /// From now on each step is one of all ranks of this group.
    pub fn join(&mut self, group: Group) {
        self.model.join(group);
    }

    /// Makes the next step over `rows`, the plan's training rows.
    /// Errors: `NotFinite` when the guard ends the run, naming the first weight that is not finite, if any;
    /// `DataChanged` when the rows do not fit the plan.
    pub fn step(&mut self, rows: &dyn RowSource) -> Outcome<StepOutcome> {
        self.check_rows(rows)?;
        let Rank { plan, rank, model, optimizer, progress, batch, .. } = self;
        let outcome = step(model, optimizer, rows, plan, *rank, progress, batch);
        outcome.map_err(|problem| self.with_tensor(problem))
    }

    /// Loss over all of `rows`, without dropout; remembers it where it is the best. `alive` is told the rows done, now and
    /// then.
    pub fn evaluate(&mut self, rows: &dyn RowSource, alive: &mut dyn FnMut(u64)) -> Outcome<Evaluation> {
        let (micro_batch, length) = (self.plan.micro_batch, self.plan.data.max_length as usize);
        let mut evaluation = evaluate(&self.model, rows, micro_batch, length, alive)?;
        evaluation.is_best = evaluation.loss.is_finite() && self.best.is_none_or(|b| evaluation.loss < b.loss);
        if evaluation.is_best {
            self.best = Some(Best { step: self.progress.step, loss: evaluation.loss });
        }
        Ok(evaluation)
    }

    /// Waits until all work so far is done, as a stopwatch must.
    pub fn synchronise(&self) {
        self.model.stream().synchronise();
    }

    /// Where the run is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The best evaluation so far.
    pub fn best(&self) -> Option<Best> {
        self.best
    }

    /// True when all steps of the plan are done.
    pub fn is_finished(&self) -> bool {
        self.progress.step >= self.plan.run.steps
    }

    fn check_rows(&self, rows: &dyn RowSource) -> Outcome<()> {
        if rows.rows() == self.plan.data.rows && rows.rows() > 0 {
            return Ok(());
        }
        let what = format!("the token cache has {} rows and the plan has {}", rows.rows(), self.plan.data.rows);
        Err(Problem::new(Code::DataChanged, what).remedy("start a new job on this data"))
    }

    /// Names the first weight that is not finite: where the trouble is in the model itself, that is the answer.
    fn with_tensor(&self, problem: Problem) -> Problem {
        if problem.code != Code::NotFinite {
            return problem;
        }
        match self.model.first_not_finite() {
            Some(tensor) => problem.tensor(tensor),
            None => problem,
        }
    }
}

/// Mean loss over all of `rows` in micro-batches of `micro_batch` rows; `is_best` is false. NaN where nothing is a target.
pub fn evaluate(
    model: &Model,
    rows: &dyn RowSource,
    micro_batch: u32,
    longest: usize,
    alive: &mut dyn FnMut(u64),
) -> Outcome<Evaluation> {
    let mut batch = MicroBatch::default();
    let (mut sum, mut targets, mut at) = (0.0, 0, 0);
    while at < rows.rows() {
        let end = (at + u64::from(micro_batch.max(1))).min(rows.rows());
        let part = (at..end).map(|i| (i, rows.row(i)));
        targets += part.clone().map(|(_, row): (u64, Row<'_>)| row.targets()).sum::<u64>();
        batch.fill(part, longest)?;
        sum += model.evaluate(&batch)?;
        at = end;
        alive(at);
    }
    let loss = sum / targets as f64;
    Ok(Evaluation { loss, perplexity: loss.exp(), targets, is_best: false })
}

fn check(plan: &Plan, rank: u32) -> Outcome<()> {
    if rank < plan.strategy.dp && plan.strategy.world_size() == plan.strategy.dp {
        return Ok(());
    }
    Err(Problem::new(Code::NotSupported, "layouts other than data parallel come in a later version"))
}

#[cfg(test)]
mod tests;
