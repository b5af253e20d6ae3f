//! What happens in a run, as the journal keeps it and `--json` prints it.

use crate::plan::MemoryUsed;
use crate::problem::Problem;
use serde::{Deserialize, Serialize};

/// One optimizer step, as measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Step {
    /// The step, from 1.
    pub step: u64,
    /// Mean negative log-likelihood over the step's target tokens, in nats.
    pub loss: f64,
    /// L2 norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Learning rate this step used.
    pub learning_rate: f64,
    /// Target tokens of the step (those that carry loss).
    pub targets: u64,
    /// Tokens trained on so far in the run, padding excluded.
    pub tokens: u64,
    /// Epochs done, fractional.
    pub epoch: f64,
    /// Wall time of the whole step in milliseconds, waits included.
    pub step_ms: f64,
    /// Tokens of this step (padding excluded) over its wall time.
    pub tokens_per_second: f64,
}

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The job waits for its devices.
    Queued {
        /// Ticket in the queue.
        ticket: u64,
        /// Devices it waits for.
        devices: Vec<String>,
    },
    /// An attempt began: the trainer is up and about to run step `step` + 1.
    Started {
        /// Steps already done.
        step: u64,
        /// Steps the plan has.
        steps_total: u64,
    },
    /// One optimizer step is done.
    Step(Step),
    /// An evaluation is done.
    Evaluation {
        /// Steps done.
        step: u64,
        /// Mean loss over all evaluation targets, in nats.
        loss: f64,
        /// exp(loss).
        perplexity: f64,
        /// Target tokens evaluated.
        tokens: u64,
    },
    /// The state is safe in host memory.
    Snapshot {
        /// Steps done.
        step: u64,
    },
    /// The state is durable on disk.
    Checkpoint {
        /// Steps done.
        step: u64,
        /// Folder name below `checkpoints/`.
        path: String,
        /// Bytes written.
        bytes: u64,
        /// Seconds it took.
        seconds: f64,
    },
    /// Something the user should know; training goes on.
    Warning {
        /// Steps done.
        step: u64,
        /// What.
        problem: Problem,
    },
    /// The trainer was started again.
    Restarted {
        /// Step it resumes from.
        step: u64,
        /// Why the last one ended.
        why: Problem,
    },
    /// Training waits, its state safe on disk.
    Paused {
        /// Steps done.
        step: u64,
    },
    /// Training goes on after a pause.
    Resumed {
        /// Steps done.
        step: u64,
    },
    /// A stop was asked for.
    Stopping {
        /// Steps done.
        step: u64,
    },
    /// Stopped by the user, state safe on disk.
    Stopped {
        /// Steps done.
        step: u64,
    },
    /// Ended without the user's wish; can be resumed.
    Interrupted {
        /// Steps done and safe.
        step: u64,
        /// Why.
        problem: Problem,
    },
    /// A step was not applied: its loss or gradient was not finite.
    Skipped {
        /// The step.
        step: u64,
        /// What was not finite.
        problem: Problem,
    },
    /// The run went back to an earlier step.
    Rewound {
        /// The step it went back to.
        step: u64,
        /// Why.
        problem: Problem,
    },
    /// All steps are done; the final checkpoint is durable.
    Finished {
        /// Steps done.
        step: u64,
        /// Loss of the last step.
        loss: f64,
        /// Memory as counted by the trainer's allocator.
        memory: MemoryUsed,
    },
    /// The job cannot go on.
    Failed {
        /// Steps done and safe.
        step: u64,
        /// Why.
        problem: Problem,
    },
}

impl Event {
    /// True for the events that end a stream.
    pub fn ends(&self) -> bool {
        matches!(
            self,
            Event::Finished { .. } | Event::Failed { .. } | Event::Stopped { .. } | Event::Interrupted { .. }
        )
    }

    /// True for the frequent events that may wait up to a second for their fsync.
    pub fn is_metric(&self) -> bool {
        matches!(self, Event::Step(_))
    }

    /// The step the event speaks of; 0 where it has none.
    pub fn step(&self) -> u64 {
        match self {
            Event::Queued { .. } => 0,
            Event::Step(s) => s.step,
            Event::Started { step, .. }
            | Event::Evaluation { step, .. }
            | Event::Snapshot { step }
            | Event::Checkpoint { step, .. }
            | Event::Warning { step, .. }
            | Event::Restarted { step, .. }
            | Event::Paused { step }
            | Event::Resumed { step }
            | Event::Stopping { step }
            | Event::Stopped { step }
            | Event::Interrupted { step, .. }
            | Event::Skipped { step, .. }
            | Event::Rewound { step, .. }
            | Event::Finished { step, .. }
            | Event::Failed { step, .. } => *step,
        }
    }
}

/// An event with its place in the journal; also what `train --json` prints, one a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Entry {
    /// Position in the journal, from 1, without gaps.
    pub sequence: u64,
    /// Attempt, from 1: each start of a trainer is one.
    pub attempt: u32,
    /// Milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The job's id.
    pub job: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}
