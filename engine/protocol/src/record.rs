//! What the history says of a job.

use crate::event::Step;
use crate::job::JobSpec;
use crate::plan::Plan;
use crate::problem::Problem;
use serde::{Deserialize, Deserializer, Serialize};

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for devices.
    Queued,
    /// The trainer loads.
    Starting,
    /// Steps are made.
    Running,
    /// Waits for `resume`.
    Paused,
    /// A stop was asked for.
    Stopping,
    /// All steps done.
    Finished,
    /// Cannot go on.
    Failed,
    /// Ended by the user; can be resumed.
    Stopped,
    /// Ended without the user's wish; can be resumed.
    Interrupted,
}

impl JobState {
    /// The snake-case word.
    pub fn word(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Starting => "starting",
            JobState::Running => "running",
            JobState::Paused => "paused",
            JobState::Stopping => "stopping",
            JobState::Finished => "finished",
            JobState::Failed => "failed",
            JobState::Stopped => "stopped",
            JobState::Interrupted => "interrupted",
        }
    }

    /// The state of a word.
    pub fn of(word: &str) -> Option<JobState> {
        serde_json::from_value(serde_json::Value::String(word.to_owned())).ok()
    }

    /// True while a supervisor owns the job.
    pub fn is_alive(self) -> bool {
        use JobState::*;
        matches!(self, Queued | Starting | Running | Paused | Stopping)
    }
}

/// What a user says of a job; `labels.toml` in the run folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(default, deny_unknown_fields)]
pub struct Labels {
    /// Name; the spec's when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub name: Option<String>,
    /// Note.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(test, ts(as = "Option<String>", optional))]
    pub note: String,
    /// Tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, ts(as = "Option<Vec<String>>", optional))]
    pub tags: Vec<String>,
    /// Star.
    pub star: bool,
    /// Steps of checkpoints that retention leaves alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, ts(as = "Option<Vec<u64>>", optional))]
    pub pins: Vec<u64>,
}

/// Hashes of what went in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Fingerprints {
    /// Weight files.
    pub model: String,
    /// Data files.
    pub data: String,
    /// Tokenizer and template.
    pub tokenizer: String,
}

/// A line of the job list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct JobRow {
    /// Id: the run folder's name.
    pub id: String,
    /// Name.
    pub name: String,
    /// State.
    pub state: JobState,
    /// Model, by name.
    pub model: String,
    /// Data, by name.
    pub data: String,
    /// Stage.
    pub stage: String,
    /// Steps done.
    pub steps: u64,
    /// Steps planned.
    pub steps_total: u64,
    /// Loss of the newest step.
    pub final_loss: Option<f64>,
    /// Best evaluation loss.
    pub best_evaluation_loss: Option<f64>,
    /// Tokens trained on.
    pub tokens: u64,
    /// First start, milliseconds since the Unix epoch.
    pub started: Option<i64>,
    /// Seconds with a trainer at work.
    pub seconds_active: f64,
}

/// A checkpoint of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct CheckpointRow {
    /// Steps done.
    pub step: u64,
    /// Folder.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// The manifest is there and whole, all files have their size.
    pub complete: bool,
    /// Every checksum was compared and is right; null when not asked for.
    pub verified: Option<bool>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub problem: Option<Problem>,
}

/// One job in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct JobRecord {
    /// The list's line.
    #[serde(flatten)]
    pub row: JobRow,
    /// Why it ended; null while it lives.
    pub exit_reason: Option<String>,
    /// The problem it ended with.
    pub problem: Option<Problem>,
    /// What of its run folder can no longer be read; the rest is as it was.
    pub damage: Option<Problem>,
    /// As asked; null where `damage` says that the job file cannot be read.
    pub spec: Option<JobSpec>,
    /// As decided.
    pub plan: Plan,
    /// What went in.
    pub fingerprints: Fingerprints,
    /// Checkpoints on disk.
    pub checkpoints: Vec<CheckpointRow>,
    /// What the user says of it.
    pub labels: Labels,
    /// Attempts made.
    pub attempts: u32,
    /// Run folder.
    pub folder: String,
}

/// One step of a job, with the evaluation made after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MetricRow {
    /// Attempt that made the step (the highest that did).
    pub attempt: u32,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The step; loss and gradient norm of one that was left out are NaN, in JSON null.
    #[serde(flatten, deserialize_with = "step_or_gap")]
    pub step: Step,
    /// Mean loss of the evaluation after this step; null where there was none.
    pub evaluation_loss: Option<f64>,
}

/// A step whose loss and gradient norm may be null.
fn step_or_gap<'de, D: Deserializer<'de>>(d: D) -> Result<Step, D::Error> {
    #[derive(Deserialize)]
    struct Row {
        step: u64,
        loss: Option<f64>,
        grad_norm: Option<f64>,
        learning_rate: f64,
        targets: u64,
        tokens: u64,
        epoch: f64,
        step_ms: f64,
        tokens_per_second: f64,
    }
    let row = Row::deserialize(d)?;
    Ok(Step {
        step: row.step,
        loss: row.loss.unwrap_or(f64::NAN),
        grad_norm: row.grad_norm.unwrap_or(f64::NAN),
        learning_rate: row.learning_rate,
        targets: row.targets,
        tokens: row.tokens,
        epoch: row.epoch,
        step_ms: row.step_ms,
        tokens_per_second: row.tokens_per_second,
    })
}

/// What differs between two values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Difference {
    /// Dotted key.
    pub key: String,
    /// In the first.
    pub a: serde_json::Value,
    /// In the second.
    pub b: serde_json::Value,
}

/// Two jobs side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Comparison {
    /// Settings that differ.
    pub spec: Vec<Difference>,
    /// Data that differs.
    pub data: Vec<Difference>,
    /// Model facts that differ.
    pub model: Vec<Difference>,
    /// (step, loss) of the first.
    pub curve_a: Vec<(u64, f64)>,
    /// (step, loss) of the second.
    pub curve_b: Vec<(u64, f64)>,
}
