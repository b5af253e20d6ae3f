//! What a user asks for: the job file (TOML) and the same structure as JSON. Only `model`, `data` and `stage` are
//! required; everything left out or "auto" is decided by `plan`, with a reason.

use crate::limits;
use crate::problem::{Code, Outcome, Problem};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

mod wrong;

/// What a wrong value of a setting that may be left to the planner might have been besides.
const OR_AUTO: &str = " or \"auto\"";

/// A setting that may be left to the planner: the word "auto" or a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Auto<T> {
    /// The planner decides and says why.
    #[default]
    Auto,
    /// The user decided.
    Is(T),
}

impl<T: Clone> Auto<T> {
    /// The user's value, if there is one.
    pub fn value(&self) -> Option<T> {
        match self {
            Auto::Auto => None,
            Auto::Is(v) => Some(v.clone()),
        }
    }
}

impl<T: Serialize> Serialize for Auto<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Auto::Auto => s.serialize_str("auto"),
            Auto::Is(v) => v.serialize(s),
        }
    }
}

impl<'de, T: de::DeserializeOwned> Deserialize<'de> for Auto<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let content = serde_json::Value::deserialize(d)?;
        if content.as_str() == Some("auto") {
            return Ok(Auto::Auto);
        }
        let wrong = |e: serde_json::Error| {
            let message = e.to_string();
            // A wrong value is not told by a list of words alone: "auto" is one more.
            let of_words = message.contains("unknown variant");
            de::Error::custom(if of_words { message + ", `auto`" } else { message + OR_AUTO })
        };
        serde_json::from_value(content).map(Auto::Is).map_err(wrong)
    }
}

/// The whole wish.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Version of this structure: 1.
    #[serde(default = "one")]
    pub version: u32,
    /// Name for people; made from model and data when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub name: Option<String>,
    /// What kind of training.
    pub stage: Stage,
    /// What to train.
    pub model: ModelSpec,
    /// What to learn from.
    pub data: DataSpec,
    /// How weights move.
    #[serde(default)]
    pub optimizer: OptimizerSpec,
    /// How the learning rate moves.
    #[serde(default)]
    pub schedule: ScheduleSpec,
    /// How long, in which order.
    #[serde(default)]
    pub run: RunSpec,
    /// How much a crash may cost.
    #[serde(default)]
    pub snapshot: SnapshotSpec,
    /// Where.
    #[serde(default)]
    pub machine: MachineSpec,
}

fn one() -> u32 {
    1
}

/// Kinds of training. An unknown one is refused by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Every token is a target.
    Pretrain,
    /// Only assistant turns are targets.
    Sft,
}

/// The model: a folder, or a preset trained from scratch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields, default)]
pub struct ModelSpec {
    /// Folder in Hugging Face layout, or a checkpoint of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub path: Option<PathBuf>,
    /// Built-in shape for training from scratch: "nano".
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub preset: Option<String>,
    /// With `preset`: folder or file of a tokenizer; left out, one is trained on the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub tokenizer: Option<PathBuf>,
    /// Adapter; left out means full fine-tuning.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub adapter: Option<AdapterSpec>,
}

/// A low-rank adapter (LoRA, Hu et al. 2021).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct AdapterSpec {
    /// The one kind there is.
    #[serde(default)]
    pub kind: AdapterKind,
    /// Rank of the update.
    #[serde(default = "sixteen")]
    pub rank: u32,
    /// The update is scaled by alpha / rank; 2 × rank when left out.
    #[serde(default)]
    pub alpha: Auto<f64>,
    /// Dropout on the adapter's input.
    #[serde(default)]
    pub dropout: f64,
    /// Names of the projections that get one; all seven when left out.
    #[serde(default)]
    pub targets: Auto<Vec<String>>,
}

fn sixteen() -> u32 {
    16
}

/// Kinds of adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum AdapterKind {
    /// Low-rank adapter.
    #[default]
    Lora,
}

/// The data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// Files or folders to train on.
    pub train: Vec<PathBuf>,
    /// A fraction of the records, files of their own, or 0.
    #[serde(default)]
    pub evaluation: EvaluationData,
    /// Longest row in tokens.
    #[serde(default)]
    pub max_length: Auto<u32>,
    /// Several samples in one row, isolated from each other.
    #[serde(default = "yes")]
    pub packing: bool,
    /// What happens to a sample over `max_length`.
    #[serde(default)]
    pub too_long: TooLong,
    /// What a column means (prompt, answer, system, text, messages, …) to its name: where the layout was not recognised,
    /// or to change what was.
    #[serde(default)]
    pub columns: BTreeMap<String, String>,
    /// Who says a message, as the data names it, to `rows::ROLES`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, String>,
    /// Text encoding.
    #[serde(default = "utf8")]
    pub encoding: String,
    /// What happens to a class of unusable rows (`empty_answer`, `row_invalid`, …): `rows::CLASSES`.
    #[serde(default)]
    pub rows: BTreeMap<String, RowAction>,
    /// Lets text of the data turn into control tokens.
    #[serde(default)]
    pub special_tokens_in_text: bool,
}

fn yes() -> bool {
    true
}

fn utf8() -> String {
    "utf-8".into()
}

/// Where evaluation rows come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged, expecting = "not understood, expected a fraction like 0.02, a path or a list of paths")]
pub enum EvaluationData {
    /// This share of the records, chosen by the seed; 0 = none.
    Fraction(f64),
    /// One file.
    Path(PathBuf),
    /// Several files.
    Paths(Vec<PathBuf>),
}

impl Default for EvaluationData {
    fn default() -> Self {
        EvaluationData::Fraction(0.0)
    }
}

/// What happens to a sample over the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum TooLong {
    /// Leave it out and count it. Plain text is split into windows instead.
    #[default]
    Drop,
    /// Cut the prompt from its left; an answer is never cut.
    TruncatePrompt,
    /// Refuse the job.
    Refuse,
}

/// What happens to a class of unusable rows; `rows::Class` knows which of these make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum RowAction {
    /// Leave them out and count them.
    Skip,
    /// Only what `data.columns` or `data.roles` maps is used; what they leave unmapped refuses the job.
    Map,
    /// Make them usable: a number becomes its text, and so on.
    Convert,
    /// Refuse the job.
    Refuse,
}

/// The optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerSpec {
    /// Which.
    pub kind: OptimizerKind,
    /// Peak learning rate.
    pub learning_rate: Auto<f64>,
    /// Decay of first and second moment.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, on tensors of two or more dimensions.
    pub weight_decay: f64,
    /// Largest global gradient norm; 0 = no clipping.
    pub clip: f64,
}

impl Default for OptimizerSpec {
    fn default() -> Self {
        OptimizerSpec {
            kind: OptimizerKind::Adamw,
            learning_rate: Auto::Auto,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.01,
            clip: 1.0,
        }
    }
}

/// Optimizers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// AdamW (Loshchilov & Hutter 2019).
    #[default]
    Adamw,
}

/// The learning-rate schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleSpec {
    /// Shape after the warm-up.
    pub kind: ScheduleKind,
    /// Steps (an integer) or a fraction of all steps; 0 = none.
    pub warmup: Warmup,
}

impl Default for ScheduleSpec {
    fn default() -> Self {
        ScheduleSpec { kind: ScheduleKind::Cosine, warmup: Warmup::Fraction(0.03) }
    }
}

/// Shapes of the schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// The peak rate throughout.
    Constant,
    /// Straight down to 0.
    Linear,
    /// Half a cosine down to 0.
    #[default]
    Cosine,
}

/// Length of the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged, expecting = "not understood, expected a number of steps, or a fraction of them like 0.03")]
pub enum Warmup {
    /// Steps.
    Steps(u64),
    /// Share of all steps.
    Fraction(f64),
}

/// How long and in which order. At most one of `epochs`, `steps`, `tokens`; one epoch when none is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// Passes over the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub epochs: Option<f64>,
    /// Optimizer steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub steps: Option<u64>,
    /// Tokens, padding excluded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub tokens: Option<u64>,
    /// Rows in one optimizer step, over all ranks and micro-batches.
    pub global_batch: Auto<u32>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Steps between evaluations; 0 = never (the end included).
    pub evaluate_every: u64,
}

impl Default for RunSpec {
    fn default() -> Self {
        RunSpec { epochs: None, steps: None, tokens: None, global_batch: Auto::Auto, seed: 1, evaluate_every: 50 }
    }
}

/// How much a crash may cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields, default)]
pub struct SnapshotSpec {
    /// Steps between snapshots in host memory; 0 = never.
    pub every_steps: Auto<u64>,
    /// Time or steps between checkpoints on disk; 0 = only at the end.
    pub persist_every: Cadence,
    /// Newest checkpoints kept.
    pub keep: u32,
    /// Best checkpoints (by evaluation loss) kept besides.
    pub keep_best: u32,
}

impl Default for SnapshotSpec {
    fn default() -> Self {
        SnapshotSpec { every_steps: Auto::Auto, persist_every: Cadence::Seconds(600.0), keep: 3, keep_best: 1 }
    }
}

/// How often: in steps or in time. Written as an integer, or as "90s", "10m", "2h".
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(test, derive(ts_rs::TS), ts(type = "number | string"))]
pub enum Cadence {
    /// Steps; 0 = never.
    Steps(u64),
    /// Seconds of wall time.
    Seconds(f64),
}

impl Serialize for Cadence {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Cadence::Steps(n) => s.serialize_u64(*n),
            Cadence::Seconds(t) => s.serialize_str(&format!("{t}s")),
        }
    }
}

impl<'de> Deserialize<'de> for Cadence {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Steps(u64),
            Time(String),
        }
        let wrong = || {
            de::Error::custom("not understood, expected a number of steps or a time like \"90s\", \"10m\" or \"2h\"")
        };
        match Raw::deserialize(d).map_err(|_| wrong())? {
            Raw::Steps(n) => Ok(Cadence::Steps(n)),
            Raw::Time(text) => seconds(&text).map(Cadence::Seconds).ok_or_else(wrong),
        }
    }
}

/// Seconds of a time like "90s", "10m" or "2h"; `None` when it is none or not positive.
pub fn seconds(text: &str) -> Option<f64> {
    let unit = text.chars().last()?;
    let factor = match unit {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3600.0,
        _ => return None,
    };
    let number: f64 = text[..text.len() - 1].trim().parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number * factor)
}

/// Bytes of a size like "64MB" (KB, MB, GB are powers of 1024); `None` when it is none.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let number: f64 = text[..split].trim().parse().ok()?;
    let factor = match text[split..].to_ascii_uppercase().as_str() {
        "" | "B" => 1.0,
        "KB" | "K" | "KIB" => 1024.0,
        "MB" | "M" | "MIB" => 1024.0 * 1024.0,
        "GB" | "G" | "GIB" => 1024.0 * 1024.0 * 1024.0,
        "TB" | "T" | "TIB" => 1024.0f64.powi(4),
        _ => return None,
    };
    let total = number * factor;
    (total.is_finite() && (0.0..1e18).contains(&total)).then_some(total as u64)
}

/// Where the job runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields, default)]
pub struct MachineSpec {
    /// Names of devices ("cpu", "cuda:0"); one entry a rank.
    pub devices: Auto<Vec<String>>,
    /// Memory budget a device, e.g. "64MB".
    pub device_memory: Auto<String>,
    /// Number format of compute.
    pub precision: Auto<Precision>,
    /// Layout over ranks.
    pub strategy: Auto<StrategySpec>,
    /// What leaves the device.
    pub offload: Auto<Offload>,
}

/// Number format of compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// bfloat16 compute, f32 master weights.
    Bf16,
    /// f32 throughout.
    F32,
}

/// What leaves the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub enum Offload {
    /// Nothing.
    #[serde(rename = "none")]
    None,
    /// Optimizer state to host memory.
    #[serde(rename = "optimizer")]
    Optimizer,
    /// Optimizer state and weights to host memory.
    #[serde(rename = "optimizer+weights")]
    OptimizerWeights,
    /// To disk.
    #[serde(rename = "disk")]
    Disk,
}

/// A layout as asked; what is left out is 1 (`zero` 0).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields, default)]
pub struct StrategySpec {
    /// Data-parallel size.
    pub dp: u32,
    /// Tensor-parallel size.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Sequence-parallel size.
    pub sp: u32,
    /// Expert-parallel size.
    pub ep: u32,
    /// ZeRO stage.
    pub zero: u32,
    /// Pipeline schedule.
    pub schedule: String,
    /// Sequence-parallel method.
    pub sequence: String,
}

impl Default for StrategySpec {
    fn default() -> Self {
        let (schedule, sequence) = ("1f1b".into(), "ring".into());
        StrategySpec { dp: 1, tp: 1, pp: 1, sp: 1, ep: 1, zero: 0, schedule, sequence }
    }
}

impl JobSpec {
    /// Parses a job file and applies `--set KEY=VALUE` changes; relative paths are taken from `base`.
    /// Errors: `JobInvalid` with line and key, `SettingInvalid`, `NotSupported` for a stage or kind of a later version,
    /// `Usage` for a change that is not KEY=VALUE or names no setting.
    pub fn parse(text: &str, changes: &[String], base: &Path) -> Outcome<JobSpec> {
        if text.len() as u64 > limits::JOB_BYTES {
            return Err(Problem::new(
                Code::TooLarge,
                format!("the job file has {} bytes; at most {} are read", text.len(), limits::JOB_BYTES),
            ));
        }
        let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| wrong::syntax(&e, text))?;
        for change in changes {
            set(&mut table, change)?;
        }
        // Through the text again, so that an error names the line of the file where no change was made.
        let spec = if changes.is_empty() { toml::from_str(text) } else { table.clone().try_into() };
        let mut spec: JobSpec = spec.map_err(|e| match toml::from_str::<JobSpec>(text) {
            Err(own) if changes.is_empty() => wrong::file(&own, text),
            Err(own) => wrong::changed(&table, changes, &own, text),
            Ok(_) => wrong::changed(&table, changes, &e, text),
        })?;
        spec.root_paths(base);
        spec.check()?;
        Ok(spec)
    }

    /// Applies changes to a stored spec, as `fork --set` does.
    pub fn changed(&self, changes: &[String], base: &Path) -> Outcome<JobSpec> {
        JobSpec::parse(&self.to_toml(), changes, base)
    }

    /// The job file that means this spec.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_default()
    }

    fn root_paths(&mut self, base: &Path) {
        let root = |p: &mut PathBuf| {
            if p.is_relative() {
                *p = base.join(&*p);
            }
        };
        self.model.path.iter_mut().chain(self.model.tokenizer.iter_mut()).for_each(root);
        self.data.train.iter_mut().for_each(root);
        match &mut self.data.evaluation {
            EvaluationData::Fraction(_) => {}
            EvaluationData::Path(p) => root(p),
            EvaluationData::Paths(ps) => ps.iter_mut().for_each(root),
        }
    }

    fn check(&self) -> Outcome<()> {
        let bad = |field: &str, what: String| Err(Problem::new(Code::SettingInvalid, what).field(field));
        if self.version != 1 {
            return bad(
                "version",
                format!("job file version {} is not known; this Anneal reads version 1", self.version),
            );
        }
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        match (&self.model.path, &self.model.preset) {
            (None, None) => {
                return bad("model", "neither model.path nor model.preset is given; give one of them".into());
            }
            (Some(_), Some(_)) => {
                return bad("model", "both model.path and model.preset are given; give one of them".into());
            }
            _ => {}
        }
        if self.data.train.is_empty() {
            return bad("data.train", "no training file is given".into());
        }
        if [self.run.epochs.is_some(), self.run.steps.is_some(), self.run.tokens.is_some()]
            .iter()
            .filter(|x| **x)
            .count()
            > 1
        {
            return bad("run", "more than one of run.epochs, run.steps and run.tokens is given; give one".into());
        }
        self.check_numbers()
    }

    fn check_numbers(&self) -> Outcome<()> {
        let o = &self.optimizer;
        let unit = |x: f64| (0.0..1.0).contains(&x);
        let fraction = match self.data.evaluation {
            EvaluationData::Fraction(f) => f,
            _ => 0.0,
        };
        let warmup = match self.schedule.warmup {
            Warmup::Fraction(f) => f,
            Warmup::Steps(_) => 0.0,
        };
        let adapter = self.model.adapter.as_ref();
        let checks = [
            ("data.evaluation", unit(fraction), "must be at least 0 and below 1, or a path"),
            ("schedule.warmup", (0.0..=1.0).contains(&warmup), "must be a number of steps or a fraction up to 1"),
            (
                "optimizer.learning_rate",
                o.learning_rate.value().is_none_or(|x| x.is_finite() && x >= 0.0),
                "must be a finite number of at least 0",
            ),
            ("optimizer.betas", o.betas.iter().all(|b| unit(*b)), "must be at least 0 and below 1"),
            ("optimizer.eps", o.eps.is_finite() && o.eps > 0.0, "must be above 0"),
            ("optimizer.weight_decay", o.weight_decay.is_finite() && o.weight_decay >= 0.0, "must be at least 0"),
            ("optimizer.clip", o.clip.is_finite() && o.clip >= 0.0, "must be at least 0 (0 = no clipping)"),
            (
                "run.epochs",
                self.run.epochs.is_none_or(|x| x.is_finite() && x > 0.0 && x <= 1e6),
                "must be above 0 and at most 1000000",
            ),
            (
                "run.steps",
                self.run.steps.is_none_or(|x| (1..=1_000_000_000).contains(&x)),
                "must be from 1 to 1000000000",
            ),
            ("run.tokens", self.run.tokens.is_none_or(|x| x > 0), "must be at least 1"),
            (
                "run.global_batch",
                self.run.global_batch.value().is_none_or(|x| (1..=1 << 20).contains(&x)),
                "must be from 1 to 1048576",
            ),
            (
                "data.max_length",
                self.data.max_length.value().is_none_or(|x| (2..=1 << 24).contains(&x)),
                "must be from 2 to 16777216 tokens",
            ),
            ("snapshot.keep", self.snapshot.keep >= 1, "must be at least 1: the last good checkpoint is never removed"),
            ("model.adapter.rank", adapter.is_none_or(|a| (1..=4096).contains(&a.rank)), "must be from 1 to 4096"),
            ("model.adapter.dropout", adapter.is_none_or(|a| unit(a.dropout)), "must be at least 0 and below 1"),
            (
                "model.adapter.alpha",
                adapter.is_none_or(|a| a.alpha.value().is_none_or(|x| x.is_finite() && x > 0.0)),
                "must be above 0",
            ),
            (
                "machine.device_memory",
                self.machine.device_memory.value().is_none_or(|t| bytes(&t).is_some()),
                "must be a size like \"64MB\" or \"24GB\"",
            ),
        ];
        match checks.iter().find(|(_, good, _)| !good) {
            Some((field, _, rule)) => {
                let said = wrong::value_in(self, field).map_or(String::new(), |value| format!(" and is {value}"));
                Err(Problem::new(Code::SettingInvalid, format!("{field} {rule}{said}")).field(*field))
            }
            None => Ok(()),
        }
    }
}

/// Refuses names of jobs that a folder or a screen cannot hold.
pub fn check_name(name: &str) -> Outcome<()> {
    let bad =
        name.is_empty() || name.len() > limits::NAME_BYTES || name.contains('/') || name.chars().any(char::is_control);
    if bad {
        let rule = format!("1 to {} bytes, no '/' and no control characters", limits::NAME_BYTES);
        return Err(Problem::new(Code::SettingInvalid, format!("the name of a job has {rule}")).field("name"));
    }
    Ok(())
}

/// How long a run is, in its three units.
const LENGTHS: [&str; 3] = ["epochs", "steps", "tokens"];

/// Sets a dotted key of a table: VALUE is read as TOML, and as plain text where it is none.
fn set(table: &mut toml::Table, change: &str) -> Outcome<()> {
    let refuse = |why: &str| wrong::refused(change, Code::Usage, why.to_owned());
    let (key, value) = change.split_once('=').ok_or_else(|| refuse("it is not KEY=VALUE"))?;
    let parsed = format!("v = {value}").parse::<toml::Table>().ok().filter(|table| table.len() == 1);
    let value = parsed.and_then(|mut table| table.remove("v")).unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let parts: Vec<&str> = key.split('.').map(str::trim).collect();
    if parts.contains(&"") {
        return Err(refuse("a part of the key is empty"));
    }
    let (last, parents) = parts.split_last().unwrap_or((&"", &[]));
    let mut at = table;
    for part in parents {
        let next = at.entry(part.to_string()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        at = next.as_table_mut().ok_or_else(|| {
            refuse(&format!("there is no setting {key}: {part} is not a group of settings")).field(key)
        })?;
    }
    if parents == ["run"] && LENGTHS.contains(last) {
        // The three say one thing in different words: a change to one takes the place of the others.
        LENGTHS.iter().for_each(|length| drop(at.remove(*length)));
    }
    at.insert(last.to_string(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "stage = \"sft\"\n[model]\npath = \"m\"\n[data]\ntrain = [\"d.jsonl\"]\n";

    #[test]
    fn a_small_job_gets_every_default() {
        let job = JobSpec::parse(SMALL, &[], Path::new("/base")).unwrap();
        assert_eq!(job.model.path, Some("/base/m".into()));
        assert_eq!(job.snapshot.persist_every, Cadence::Seconds(600.0));
        assert_eq!(JobSpec::parse(&job.to_toml(), &[], Path::new("/")).unwrap(), job);
    }

    #[test]
    fn a_changed_length_takes_the_place_of_another() {
        let text = format!("{SMALL}[run]\nepochs = 2.0\n");
        let job = JobSpec::parse(&text, &["run.steps=5".to_owned()], Path::new("/")).unwrap();
        assert_eq!((job.run.epochs, job.run.steps), (None, Some(5)));
    }

    #[test]
    fn the_example_of_the_contract_is_read() {
        let text = r#"
            version = 1
            name = "support assistant"
            stage = "sft"
            [model]
            path = "models/SmolLM2-135M"
            [model.adapter]
            kind = "lora"
            rank = 16
            [data]
            train = ["data/support.jsonl"]
            evaluation = 0.02
            max_length = 1024
            packing = true
            too_long = "drop"
            columns = { prompt = "q", answer = "a" }
            encoding = "utf-8"
            rows = { empty_answer = "skip" }
            special_tokens_in_text = false
            [optimizer]
            kind = "adamw"
            learning_rate = 2e-4
            [schedule]
            kind = "cosine"
            warmup = 0.03
            [run]
            epochs = 1.0
            global_batch = 16
            seed = 1
            evaluate_every = 50
            [snapshot]
            every_steps = "auto"
            persist_every = "10m"
            [machine]
            devices = "auto"
            device_memory = "auto"
            precision = "auto"
            strategy = "auto"
            offload = "auto"
        "#;
        let job = JobSpec::parse(text, &[], Path::new("/")).unwrap();
        assert_eq!(job.run.global_batch, Auto::Is(16));
        assert_eq!(job.machine.devices, Auto::Auto);
    }

    #[test]
    fn set_changes_reach_nested_keys() {
        let changes = ["run.steps=3".to_owned(), "optimizer.learning_rate=1e-4".into(), "model.path=other".into()];
        let job = JobSpec::parse(SMALL, &changes, Path::new("/b")).unwrap();
        assert_eq!((job.run.steps, job.optimizer.learning_rate), (Some(3), Auto::Is(1e-4)));
        assert_eq!(job.model.path, Some("/b/other".into()));
    }

    #[test]
    fn a_wrong_key_is_named_with_its_line() {
        let problem = JobSpec::parse(&format!("{SMALL}[run]\nstepz = 3\n"), &[], Path::new("/")).unwrap_err();
        assert_eq!((problem.code, problem.place.line), (Code::JobInvalid, Some(7)));
        assert!(problem.why.contains("stepz"), "{problem}");
    }

    fn refused(text: &str, changes: &[&str]) -> Problem {
        let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
        JobSpec::parse(text, &changes, Path::new("/")).unwrap_err()
    }

    #[test]
    fn a_wrong_value_of_set_is_told_with_its_field_itself_and_what_it_may_be() {
        let cases = [
            (
                "optimizer.learning_rate=abc",
                "optimizer.learning_rate is \"abc\"; it must be a finite number or \"auto\"",
            ),
            ("optimizer.learning_rate=nan", "optimizer.learning_rate is nan; it must be a finite number or \"auto\""),
            ("run.steps=-3", "run.steps is -3; it must be a whole number of at least 0"),
            ("run.steps=1.5", "run.steps is 1.5; it must be a whole number of at least 0"),
            (
                "run.global_batch=many",
                "run.global_batch is \"many\"; it must be a whole number from 0 to 4294967295 or \"auto\"",
            ),
            ("schedule.kind=cosin", "schedule.kind is \"cosin\"; it must be constant, linear or cosine"),
            ("machine.precision=f23", "machine.precision is \"f23\"; it must be bf16, f32 or auto"),
            (
                "schedule.warmup=long",
                "schedule.warmup is \"long\"; it must be a number of steps, or a fraction of them like 0.03",
            ),
            ("snapshot.persist_every=soon", "a time like \"90s\""),
            ("run=3", "run is 3; it must be a group of settings"),
            ("data.packing=maybe", "data.packing is \"maybe\"; it must be true or false"),
        ];
        for (change, sentence) in cases {
            let problem = refused(SMALL, &[change]);
            assert_eq!(problem.place.field.as_deref(), change.split_once('=').map(|(key, _)| key), "{problem}");
            assert!(problem.why.contains(sentence), "{change}: {problem}");
            assert_eq!((problem.code, problem.place.line), (Code::SettingInvalid, None), "{problem}");
        }
    }

    #[test]
    fn wrong_usage_of_set_is_told_apart_from_a_refused_value() {
        for (change, word) in [
            ("run.steps", "KEY=VALUE"),
            ("run.stepz=3", "run.stepz; there are epochs"),
            ("stage.x=1", "stage"),
            ("=3", "empty"),
        ] {
            let problem = refused(SMALL, &[change]);
            assert_eq!(problem.code, Code::Usage, "{problem}");
            assert!(problem.why.contains(word), "{problem}");
        }
        assert_eq!(refused(SMALL, &["run.steps=0"]).code, Code::SettingInvalid);
    }

    #[test]
    fn a_wrong_word_in_the_file_is_told_with_its_line_and_the_allowed_ones() {
        let text = format!("{SMALL}[schedule]\nkind = \"cosin\"\n[run]\nseed = 3\n");
        for changes in [&[][..], &["run.seed=4"]] {
            let problem = refused(&text, changes);
            assert_eq!((problem.code, problem.place.line), (Code::JobInvalid, Some(7)), "{problem}");
            assert_eq!(problem.place.field.as_deref(), Some("schedule.kind"));
            assert_eq!(problem.why, "schedule.kind is \"cosin\"; it must be constant, linear or cosine");
        }
        let missing = refused("stage = \"sft\"\n[model]\npath = \"m\"\n", &[]);
        assert_eq!((missing.why.as_str(), missing.place.field.as_deref()), ("data is missing", Some("data")));
    }

    #[test]
    fn epochs_without_end_below_0_or_no_number_are_refused_with_their_bounds() {
        for epochs in ["1e18", "-1.0", "nan", "inf", "0"] {
            let problem = refused(SMALL, &[&format!("run.epochs={epochs}")]);
            assert_eq!((problem.code, problem.place.field.as_deref()), (Code::SettingInvalid, Some("run.epochs")));
            assert!(problem.what.contains("above 0 and at most 1000000 and is "), "{problem}");
        }
    }

    #[test]
    fn an_unknown_stage_is_refused_by_name() {
        let problem = JobSpec::parse(&SMALL.replace("sft", "dpo"), &[], Path::new("/")).unwrap_err();
        assert_eq!(problem.code, Code::NotSupported);
        assert!(problem.why.contains("dpo"), "{problem}");
    }

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!((bytes("64MB"), bytes("1.5GB"), bytes("x")), (Some(64 << 20), Some(3 << 29), None));
        assert_eq!((seconds("10m"), seconds("90s"), seconds("soon")), (Some(600.0), Some(90.0), None));
    }
}
