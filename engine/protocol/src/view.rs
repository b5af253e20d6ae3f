//! What a screen asks of the engine and what it gets: pages of the job list, curves of a bounded number of points, batches
//! of a live run, the tail of a log.
//!
//! Not here: what the history itself says of a job (`record`), the events of a run (`event`), how any of this is drawn.

use crate::event::Entry;
use crate::facts::MachineFacts;
use crate::problem::Problem;
use crate::record::JobRow;
use crate::verb::Message;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a window needs to draw itself for the first time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Startup {
    /// HOME.
    pub home: String,
    /// Version of the product.
    pub version: String,
    /// Language of the user's session, as "en" or "zh"; "en" where it says nothing known.
    pub locale: String,
    /// The machine as the planner sees it.
    pub machine: MachineFacts,
    /// What was met while opening HOME.
    pub notices: Vec<Problem>,
    /// Paths that the program was started with.
    pub opened: Vec<String>,
}

/// What a person picks in the system's dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Browse {
    /// One model folder.
    Model,
    /// Files of a data set.
    Data,
    /// One folder, whatever is in it.
    Folder,
}

/// A word to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum JobWord {
    /// Wait at the next step boundary, the state on disk.
    Pause,
    /// Go on: a paused job at once, an ended one from its newest checkpoint.
    Resume,
    /// End at the next step boundary, keeping a checkpoint.
    Stop,
    /// Write a checkpoint now.
    Checkpoint,
}

/// Column that orders the job list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum JobSort {
    /// When the job was asked for.
    #[default]
    Created,
    /// Name.
    Name,
    /// Model.
    Model,
    /// Data.
    Data,
    /// Stage.
    Stage,
    /// Loss of the newest step.
    FinalLoss,
    /// Best evaluation loss.
    BestLoss,
    /// Tokens trained on.
    Tokens,
    /// Seconds with a trainer at work.
    Duration,
    /// State.
    State,
}

/// A page of the job list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct JobQuery {
    /// Words that must all match; empty = all jobs.
    pub search: String,
    /// Column.
    pub sort: JobSort,
    /// Largest (newest) first; jobs without a value always come last.
    pub descending: bool,
    /// Rows to pass over.
    pub offset: u32,
    /// Most rows wanted.
    pub count: u32,
}

/// The answer to a `JobQuery`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct JobPage {
    /// Jobs that match, on all pages.
    pub total: u32,
    /// Rows of this page.
    pub rows: Vec<JobRow>,
}

/// What the horizontal axis of a curve counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Optimizer steps.
    #[default]
    Step,
    /// Seconds since the run's first step began, pauses included.
    Seconds,
    /// Tokens trained on.
    Tokens,
}

/// Which part of a run's curve, and how fine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct CurveQuery {
    /// Axis.
    pub axis: Axis,
    /// Least value on the axis; null = from the beginning.
    pub from: Option<f64>,
    /// Largest value on the axis; null = to the end.
    pub to: Option<f64>,
    /// Most points wanted; `limits::CURVE_POINTS` at most are given.
    pub points: u32,
}

/// A curve in columns of one length: a bucket of steps a place, in order. A bucket stands for its last step; only the
/// loss has its least and largest value of the bucket besides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Curve {
    /// Place on the axis.
    pub x: Vec<f64>,
    /// Step.
    pub step: Vec<u64>,
    /// Loss; null where it was not finite.
    pub loss: Vec<Option<f64>>,
    /// Least finite loss of the bucket.
    pub loss_min: Vec<Option<f64>>,
    /// Largest finite loss of the bucket.
    pub loss_max: Vec<Option<f64>>,
    /// Gradient norm.
    pub grad_norm: Vec<Option<f64>>,
    /// Learning rate.
    pub learning_rate: Vec<Option<f64>>,
    /// Speed.
    pub tokens_per_second: Vec<Option<f64>>,
    /// Evaluations of that range, the newest `limits::CURVE_POINTS`.
    pub evaluations: Vec<EvaluationPoint>,
    /// What else happened in that range, the newest `limits::CURVE_POINTS`.
    pub marks: Vec<Mark>,
    /// Steps of the run in that range, before any were put together.
    pub rows: u64,
}

/// An evaluation on a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct EvaluationPoint {
    /// Place on the axis.
    pub x: f64,
    /// Steps done.
    pub step: u64,
    /// Mean loss; null where it was not finite.
    pub loss: Option<f64>,
}

/// Something that happened on the way, other than a step or an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Mark {
    /// Place on the axis.
    pub x: f64,
    /// Steps done.
    pub step: u64,
    /// Milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The event's word: "checkpoint", "restarted", "rewound", "skipped", "warning", "paused", …
    pub kind: String,
    /// What there is to say of it, such as a checkpoint's folder.
    pub text: Option<String>,
    /// Why it happened.
    pub problem: Option<Problem>,
}

/// What a live run did since the last batch: every event that is not a step, and the steps thinned to
/// `limits::BATCH_STEPS`, the newest always among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Batch {
    /// In order.
    pub entries: Vec<Entry>,
    /// The run has ended; no batch follows.
    pub ended: bool,
}

/// How much a line of a log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something to know.
    Warning,
    /// What is being done.
    Info,
    /// Printed without a level.
    Output,
}

/// A line of a job's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LogLine {
    /// When; null where the line does not say.
    pub at_ms: Option<i64>,
    /// How much it matters.
    pub level: LogLevel,
    /// The line.
    pub text: String,
}

/// The newest lines of a job's log, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LogTail {
    /// The lines.
    pub lines: Vec<LogLine>,
}

/// What a screen lets a model say: exactly one of `messages` and `prompt`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct GenerateQuery {
    /// Model folder or checkpoint.
    pub model: PathBuf,
    /// Adapter folder.
    pub adapter: Option<PathBuf>,
    /// A conversation, through the chat template.
    pub messages: Option<Vec<Message>>,
    /// Raw text.
    pub prompt: Option<String>,
    /// Most new tokens.
    pub max_tokens: u32,
    /// 0 = greedy.
    pub temperature: f64,
    /// Seed of sampling.
    pub seed: u64,
}

/// What an export writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ExportFormat {
    /// A whole model; an adapter is merged into its base.
    Safetensors,
    /// The adapter alone.
    Adapter,
    /// A whole model as one GGUF file of 16-bit floats, for llama.cpp and its kind.
    GgufF16,
    /// The same in about half the bytes: blocks of 8-bit whole numbers.
    GgufQ8,
}
