//! The complete decision: everything a rank needs, nothing it must interpret. Only `plan::plan` builds one; a run stores it
//! as plan.json and a resume reads that file and never plans again.

use crate::facts::ModelConfig;
use crate::job::{Cadence, OptimizerKind, Precision, ScheduleKind, Stage};
use crate::look::Survey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A complete plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of this structure: 1.
    pub version: u32,
    /// Kind of training.
    pub stage: Stage,
    /// The model.
    pub model: PlannedModel,
    /// Which parameters move.
    pub method: Method,
    /// The token cache to map.
    pub data: PlannedData,
    /// The optimizer.
    pub optimizer: PlannedOptimizer,
    /// The learning rate.
    pub schedule: PlannedSchedule,
    /// Length and order.
    pub run: PlannedRun,
    /// Snapshots and checkpoints.
    pub snapshot: PlannedSnapshot,
    /// Layout; the product of dp, tp, pp and sp is the number of devices.
    pub strategy: Strategy,
    /// Number format of compute.
    pub precision: Precision,
    /// One device a rank.
    pub devices: Vec<String>,
    /// Rows a rank takes through the model at once.
    pub micro_batch: u32,
    /// Micro-batches in an optimizer step: ceil(global_batch / (micro_batch × dp)).
    pub gradient_accumulation: u32,
    /// What is computed again in the backward pass instead of being kept.
    pub recompute: Recompute,
    /// Where weights and optimizer state live: "device".
    pub placement: String,
    /// What the bits of the result depend on.
    pub compute: Compute,
    /// The memory table.
    pub memory: MemoryPlan,
    /// The time model's answer.
    pub predicted: Predicted,
    /// Why each decision was taken.
    pub reasons: Vec<Reason>,
    /// Other plans that fit.
    pub alternatives: Vec<Alternative>,
}

/// The model of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct PlannedModel {
    /// Where weights come from.
    pub source: ModelSource,
    /// Hash of the weight files; of the shape where weights are fresh.
    pub fingerprint: String,
    /// Shape.
    pub config: ModelConfig,
    /// Folder whose tokenizer and template files go beside every checkpoint.
    pub tokenizer: PathBuf,
}

/// Where weights come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum ModelSource {
    /// A folder in Hugging Face layout.
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// Fresh weights: normal, standard deviation `initializer_range`; norms 1.
    Scratch,
}

/// Which parameters move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Method {
    /// All.
    Full,
    /// Low-rank updates; base weights stay. W' = W + (alpha / rank) B A.
    Lora {
        /// Rank.
        rank: u32,
        /// Scale times rank.
        alpha: f64,
        /// Dropout on the adapter's input.
        dropout: f64,
        /// Projections, a subset of `facts::PROJECTIONS` in that order.
        targets: Vec<String>,
    },
}

/// The data of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct PlannedData {
    /// Folder of the token cache.
    pub tokens: PathBuf,
    /// The cache's fingerprint; the trainer refuses another.
    pub fingerprint: String,
    /// Hash of the data files.
    pub data_fingerprint: String,
    /// Hash of tokenizer and template.
    pub tokenizer_fingerprint: String,
    /// Training rows.
    pub rows: u64,
    /// Tokens in them.
    pub row_tokens: u64,
    /// Evaluation rows; 0 = off.
    pub evaluation_rows: u64,
    /// Length every row is padded to at most (the longest row, at most max_length).
    pub max_length: u32,
    /// Tokens that carry loss.
    #[serde(default)]
    pub targets: u64,
    /// Samples; several share a row where rows are packed.
    #[serde(default)]
    pub samples: u64,
    /// Records left out, by class.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// Lengths of the records.
    #[serde(default)]
    pub survey: Survey,
}

impl PlannedData {
    /// The same data: what is only told of it does not count.
    pub fn is(&self, other: &PlannedData) -> bool {
        let said = |d: &PlannedData| {
            (d.tokens.clone(), d.fingerprint.clone(), d.data_fingerprint.clone(), d.tokenizer_fingerprint.clone())
        };
        let counted = |d: &PlannedData| (d.rows, d.row_tokens, d.evaluation_rows, d.max_length);
        said(self) == said(other) && counted(self) == counted(other)
    }
}

/// The optimizer of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct PlannedOptimizer {
    /// Which.
    pub kind: OptimizerKind,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Moment decay.
    pub betas: [f64; 2],
    /// Epsilon.
    pub eps: f64,
    /// Decoupled decay on tensors of two or more dimensions.
    pub weight_decay: f64,
    /// Largest global gradient norm; 0 = none.
    pub clip: f64,
}

/// The learning rate of a plan. Step s (from 0) uses factor(s): s / warmup below `warmup_steps`, then the shape over the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct PlannedSchedule {
    /// Shape.
    pub kind: ScheduleKind,
    /// Warm-up steps.
    pub warmup_steps: u64,
    /// All steps.
    pub total_steps: u64,
}

/// Length and order of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct PlannedRun {
    /// Optimizer steps.
    pub steps: u64,
    /// Rows a step, over all ranks and micro-batches.
    pub global_batch: u32,
    /// Rows drawn in the whole run; the last step takes what is left.
    pub rows_total: u64,
    /// Seed.
    pub seed: u64,
    /// Steps between evaluations; 0 = never.
    pub evaluate_every: u64,
}

/// Snapshots and checkpoints of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct PlannedSnapshot {
    /// Steps between snapshots in host memory; 0 = never.
    pub every_steps: u64,
    /// Between checkpoints.
    pub persist_every: Cadence,
    /// Newest kept.
    pub keep: u32,
    /// Best kept besides.
    pub keep_best: u32,
}

/// A layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Strategy {
    /// Data parallel.
    pub dp: u32,
    /// Tensor parallel.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Sequence parallel.
    pub sp: u32,
    /// Expert parallel.
    pub ep: u32,
    /// ZeRO stage.
    pub zero: u32,
    /// Pipeline schedule.
    pub schedule: String,
    /// Sequence method.
    pub sequence: String,
}

/// What the backward pass computes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// Nothing: all activations are kept.
    None,
    /// Every layer from its input.
    Layers,
}

/// What the bits of the result depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// CPU model (a matrix library may take its blocking from it).
    pub cpu: String,
    /// Instruction set.
    pub instruction_set: String,
    /// Threads a rank; results do not depend on it.
    pub threads: u32,
    /// Versions of numeric libraries and of Anneal.
    pub libraries: BTreeMap<String, String>,
}

/// Part of memory an allocation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Parameters.
    Weights,
    /// Gradients of what moves.
    Gradients,
    /// Optimizer state.
    Optimizer,
    /// Kept for the backward pass.
    Activations,
    /// Everything short-lived.
    Workspace,
}

/// One line of the arena table: the trainer allocates exactly these, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct ArenaLine {
    /// Name, e.g. "model.layers.0.self_attn.q_proj.weight" or "layer.0.attention_in".
    pub name: String,
    /// Part.
    pub part: Part,
    /// Bytes.
    pub bytes: u64,
}

/// Bytes by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// Parameters.
    pub weights: u64,
    /// Gradients.
    pub gradients: u64,
    /// Optimizer state.
    pub optimizer: u64,
    /// Activations.
    pub activations: u64,
    /// Workspace.
    pub workspace: u64,
}

impl Parts {
    /// Adds bytes to a part.
    pub fn add(&mut self, part: Part, bytes: u64) {
        *match part {
            Part::Weights => &mut self.weights,
            Part::Gradients => &mut self.gradients,
            Part::Optimizer => &mut self.optimizer,
            Part::Activations => &mut self.activations,
            Part::Workspace => &mut self.workspace,
        } += bytes;
    }

    /// Sum of all parts.
    pub fn total(&self) -> u64 {
        self.weights + self.gradients + self.optimizer + self.activations + self.workspace
    }
}

/// Memory of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct DeviceMemory {
    /// "cpu", "cuda:0".
    pub name: String,
    /// Budget.
    pub bytes_total: u64,
    /// By part.
    pub parts: Parts,
    /// Most at any time.
    pub bytes_peak: u64,
}

/// The memory table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct MemoryPlan {
    /// One a rank.
    pub devices: Vec<DeviceMemory>,
    /// Host memory of the trainer process: mapped files, snapshot slots and, for CPU ranks, the device bytes.
    pub host_bytes_peak: u64,
    /// Disk: (checkpoints kept + 1) × one checkpoint.
    pub disk_bytes: u64,
    /// Bytes of one checkpoint.
    pub checkpoint_bytes: u64,
    /// What rank 0 allocates.
    pub arena: Vec<ArenaLine>,
}

/// The time model's answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Predicted {
    /// Milliseconds a step.
    pub step_ms: f64,
    /// Tokens a second.
    pub tokens_per_second: f64,
    /// Model FLOP utilisation, 0 to 1.
    pub mfu: f64,
}

/// Why a setting has its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Key of the job file, or a name of this structure.
    pub field: String,
    /// The value, as text.
    pub value: String,
    /// Why.
    pub why: String,
}

/// Another plan that fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// What differs, in words.
    pub what: String,
    /// Rows at once.
    pub micro_batch: u32,
    /// Recomputation.
    pub recompute: Recompute,
    /// Most device bytes.
    pub bytes_peak: u64,
    /// Milliseconds a step.
    pub step_ms: f64,
}

/// Memory as counted, told by `finished`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MemoryUsed {
    /// One a rank.
    pub devices: Vec<DevicePeak>,
    /// The process's high-water mark (VmHWM).
    pub host_bytes_peak: u64,
}

/// High-water mark of one rank's allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct DevicePeak {
    /// Bytes.
    pub bytes_peak: u64,
}

impl Strategy {
    /// Ranks of this layout.
    pub fn world_size(&self) -> u32 {
        self.dp * self.tp * self.pp * self.sp
    }
}
