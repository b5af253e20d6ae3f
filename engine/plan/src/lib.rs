//! From a wish and a machine to a complete plan, or a refusal that names both numbers and the way out.
//!
//! Pure: no clock, no files, no environment. The same arguments give the same plan, byte for byte. Decisions are taken
//! from *total* memory; free memory can only refuse. Everything the job file left to "auto" comes back with a `Reason`.
//!
//! Read `plan()` first, it is the whole story in order. Then: `scope` (what this version refuses by name), `ranks` (devices, precision, layout), `length`
//! (rows, batch, steps, warm-up), `memory` (the arena table, shared with the trainer), `time` (FLOPs and bytes over
//! the machine's speed), `fit` (micro-batch and recomputation), `room` (host memory and disk), `preset` (built-in shapes).
//!
//! Not here: reading models and data (`formats`), measuring the machine (`engine`), carrying a plan out (`trainer`).

mod fit;
mod length;
pub mod memory;
mod preset;
mod ranks;
#[cfg(test)]
mod ranks_tests;
mod room;
mod scope;
#[cfg(test)]
mod tests;
mod time;

pub use length::max_length;
pub use preset::preset;
pub use time::flops_per_token;

use protocol::facts::{MachineFacts, ModelConfig, TokenFacts};
use protocol::plan::{
    Compute, DeviceMemory, MemoryPlan, ModelSource, Plan, PlannedData, PlannedModel, PlannedOptimizer, PlannedSnapshot,
    Reason,
};
use protocol::{JobSpec, Outcome};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The model a job starts from, as intake found it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Where weights come from.
    pub source: ModelSource,
    /// Hash of the weight files; of the shape where weights are fresh.
    pub fingerprint: String,
    /// Shape.
    pub config: ModelConfig,
    /// Bytes of the weight files; 0 where weights are fresh.
    pub bytes: u64,
    /// Number format on disk: "F32", "BF16", "F16"; "F32" where weights are fresh.
    pub dtype: String,
    /// Folder whose tokenizer and template files go beside every checkpoint.
    pub tokenizer: PathBuf,
}

impl Model {
    /// True where weights are drawn, not read.
    fn is_scratch(&self) -> bool {
        self.source == ModelSource::Scratch
    }
}

/// Refuses at once, before any data is read, what `plan` would refuse whatever the data and the machine are.
pub fn check(spec: &JobSpec, config: &ModelConfig, machine: &MachineFacts) -> Outcome<()> {
    length::check_context(spec, config)?;
    scope::settle(spec, config, &mut Reasons::default())?;
    ranks::settle(spec, machine, &mut Reasons::default()).map(|_| ())
}

/// Decides everything a rank needs to know, or refuses.
///
/// Refusals: `NotSupported` (a known feature of a later version, by name), `SettingInvalid` (a setting contradicts the
/// model or the data, with the field), `NoUsableRows`, `OutOfMemory` and `DiskFull` (both numbers and what would fit).
pub fn plan(spec: &JobSpec, model: &Model, tokens: &TokenFacts, machine: &MachineFacts) -> Outcome<Plan> {
    let mut reasons = Reasons::default();
    scope::check_machine(machine)?;
    let method = scope::settle(spec, &model.config, &mut reasons)?;
    let ranks = ranks::settle(spec, machine, &mut reasons)?;
    let row = length::row(spec, model, tokens, &mut reasons)?;
    let run = length::run(spec, model, tokens, &mut reasons)?;
    let schedule = length::schedule(spec, run.steps, &mut reasons);
    let optimizer = optimizer(spec, model, &mut reasons);
    let snapshot = snapshot(spec, &mut reasons);

    let load = fit::Load { model, method: &method, optimizer: optimizer.kind, row, run: &run, ranks: &ranks };
    let budget = fit::Budget::of(spec, machine, &ranks, &mut reasons);
    let found = fit::choose(&load, &budget, machine, &mut reasons)?;
    let best = &found.best;
    let host_bytes_peak = room::host_bytes(model, tokens, best.bytes, &ranks);
    room::check_free_memory(best.bytes, model, machine, &ranks)?;
    let checkpoint_bytes = room::checkpoint_bytes(model, &method);
    let disk_bytes = room::check_disk(&snapshot, checkpoint_bytes, machine)?;

    Ok(Plan {
        version: 1,
        stage: spec.stage,
        model: planned_model(model),
        method,
        data: planned_data(tokens, row),
        optimizer,
        schedule,
        snapshot,
        precision: ranks.precision,
        devices: ranks.names(),
        micro_batch: best.micro_batch,
        gradient_accumulation: run.global_batch.div_ceil(best.micro_batch * ranks.count()),
        recompute: best.recompute,
        placement: "device".to_owned(),
        compute: compute(machine),
        memory: MemoryPlan {
            devices: ranks.names().into_iter().map(|name| device_memory(name, best, budget.bytes)).collect(),
            host_bytes_peak,
            disk_bytes,
            checkpoint_bytes,
            arena: best.arena.clone(),
        },
        predicted: best.predicted,
        reasons: reasons.list,
        alternatives: found.alternatives,
        strategy: ranks.strategy,
        run,
    })
}

/// The device that every machine has.
const CPU: &str = "cpu";

fn planned_model(model: &Model) -> PlannedModel {
    PlannedModel {
        source: model.source.clone(),
        fingerprint: model.fingerprint.clone(),
        config: model.config.clone(),
        tokenizer: model.tokenizer.clone(),
    }
}

fn planned_data(tokens: &TokenFacts, row: length::Row) -> PlannedData {
    PlannedData {
        tokens: tokens.path.clone(),
        fingerprint: tokens.fingerprint.clone(),
        data_fingerprint: tokens.data_fingerprint.clone(),
        tokenizer_fingerprint: tokens.tokenizer_fingerprint.clone(),
        rows: tokens.train.rows,
        row_tokens: tokens.train.tokens,
        evaluation_rows: tokens.evaluation.rows,
        max_length: row.length,
        targets: tokens.train.targets,
        samples: tokens.train.samples,
        dropped: tokens.train.dropped.clone(),
        survey: tokens.survey.clone(),
    }
}

/// Learning rate where it was left open: 2e-4 for adapters (Hu et al. 2021, table 11), 2e-5 for all weights of a trained
/// model (Touvron et al. 2023, section 3.1), 1e-3 for fresh weights of the small shapes that a CPU trains.
fn optimizer(spec: &JobSpec, model: &Model, reasons: &mut Reasons) -> PlannedOptimizer {
    let asked = &spec.optimizer;
    let (auto, why) = match (&spec.model.adapter, model.is_scratch()) {
        (Some(_), _) => (2e-4, "usual for low-rank adapters, whose updates are scaled down"),
        (None, false) => (2e-5, "usual for all weights of a trained model: large steps would undo what it knows"),
        (None, true) => (1e-3, "usual for a small model from fresh weights"),
    };
    PlannedOptimizer {
        kind: asked.kind,
        learning_rate: reasons.settle("optimizer.learning_rate", asked.learning_rate.value(), auto, why),
        betas: asked.betas,
        eps: asked.eps,
        weight_decay: asked.weight_decay,
        clip: asked.clip,
    }
}

fn snapshot(spec: &JobSpec, reasons: &mut Reasons) -> PlannedSnapshot {
    let asked = &spec.snapshot;
    let why = "this version writes checkpoints to disk; snapshots in host memory come with a later version";
    PlannedSnapshot {
        every_steps: reasons.settle("snapshot.every_steps", asked.every_steps.value(), 0, why),
        persist_every: asked.persist_every,
        keep: asked.keep,
        keep_best: asked.keep_best,
    }
}

fn device_memory(name: String, best: &fit::Candidate, budget: u64) -> DeviceMemory {
    let parts = memory::parts(&best.arena);
    DeviceMemory { name, bytes_total: budget, parts, bytes_peak: best.bytes }
}

/// Every product is computed by our own kernels, so that the bits depend on no other library than this one.
fn compute(machine: &MachineFacts) -> Compute {
    Compute {
        cpu: machine.cpu.clone(),
        instruction_set: machine.instruction_set.clone(),
        threads: machine.cores.max(1),
        libraries: libraries(),
    }
}

/// Versions of what the bits of a result depend on, as this binary was built.
pub fn libraries() -> BTreeMap<String, String> {
    BTreeMap::from([("anneal".to_owned(), env!("CARGO_PKG_VERSION").to_owned())])
}

/// Why each decision was taken, gathered on the way.
#[derive(Default)]
struct Reasons {
    list: Vec<Reason>,
}

impl Reasons {
    /// The user's value where there is one; else `auto`, with its reason on the list.
    fn settle<T: ToString>(&mut self, field: &str, asked: Option<T>, auto: T, why: &str) -> T {
        asked.unwrap_or_else(|| {
            self.add(field, auto.to_string(), why);
            auto
        })
    }

    fn add(&mut self, field: &str, value: impl ToString, why: impl Into<String>) {
        self.list.push(Reason { field: field.to_owned(), value: value.to_string(), why: why.into() });
    }
}

/// A size for people: "210 MB" or "12 KB", powers of 1024 as in the job file. `up` rounds up (a need), else down (an offer).
fn size(bytes: u64, up: bool) -> String {
    let (shift, unit) = if bytes >= 1 << 20 { (20, "MB") } else { (10, "KB") };
    let number = if up { bytes.div_ceil(1 << shift) } else { bytes >> shift };
    format!("{number} {unit}")
}
