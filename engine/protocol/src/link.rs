//! Messages between supervisor and trainer (fd 3) and between engines and supervisor (`supervisor.sock`): JSON lines of
//! at most `limits::MESSAGE_BYTES`, the first of each side a `Hello`.

use crate::event::Event;
use crate::problem::Problem;
use serde::{Deserialize, Serialize};

/// First line of each side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// `limits::PROTOCOL`.
    pub protocol: u32,
}

/// Supervisor to trainer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ToTrainer {
    /// Write a checkpoint at the next step boundary.
    Snapshot,
    /// Write a checkpoint at the next step boundary, then wait.
    Pause,
    /// Go on after a pause.
    Resume,
    /// Write a checkpoint at the next step boundary, then exit.
    Stop,
    /// All step events up to this step are in the journal.
    Acknowledge {
        /// The step.
        step: u64,
    },
}

/// Trainer to supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum FromTrainer {
    /// Something for the journal.
    Event {
        /// What happened.
        event: Event,
    },
    /// Still alive in a long phase (loading, first step, evaluation, saving); resets the hang watch.
    Alive {
        /// What it is doing, in a word or two.
        phase: String,
    },
    /// Last message of an attempt that cannot go on while the job can: a device failed. The process ends.
    Broken {
        /// What happened.
        problem: Problem,
    },
    /// Last message before a clean exit after `Stop`; state is safe at this step.
    Leaving {
        /// Steps done and safe.
        step: u64,
    },
}

/// Engine to supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Are you there.
    Ping,
    /// Checkpoint now.
    Snapshot,
    /// Pause at the next step boundary.
    Pause,
    /// Go on.
    Resume,
    /// Stop at the next step boundary, keeping a checkpoint.
    Stop,
}

/// Supervisor's answer to each request, at once; the effect shows in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Accepted.
    Done,
    /// Not possible now.
    Refused {
        /// Why.
        problem: Problem,
    },
}
