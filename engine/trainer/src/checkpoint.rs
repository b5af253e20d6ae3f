//! The files of a checkpoint, and a rank made from them again: bit for bit the one that was saved.
//!
//! * Full training: the f32 master weights in Hugging Face layout (`model.safetensors`, `config.json`, tokenizer files), so
//!   that the folder loads as it is. Adapters: `adapter_model.safetensors` and `adapter_config.json` in PEFT's layout.
//! * `optimizer-00001.safetensors` and on: `<parameter>.exp_avg` and `.exp_avg_sq` in full shape, split by size.
//! * `state.json`: where the run is ([`State`]).
//!
//! Tensors leave the device one at a time: besides the model itself only one of them is ever in memory.
//!
//! Not here: durability, checksums and names (`store::checkpoint`), and when to save (the `run` verb).

use crate::guard::Guard;
use crate::model::parameter::Parameter;
use crate::rank::{Best, Rank};
use crate::step::{Learner, Progress};
use crate::weights;
use formats::adapter::{self, AdapterConfig};
use formats::model_folder::{config_json, generation_config_json, tokenizer_files};
use formats::safetensors::{self, Dtype, File, TensorSpec};
use kernels::{Buffer, Device, Stream};
use protocol::plan::{Method, ModelSource, Plan};
use protocol::{Code, Outcome, Problem, event};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use store::checkpoint::{Manifest, Restore, WriteFailure, Writer};

/// Largest optimizer file, in bytes: a damaged or missing one costs little to name and nothing needs larger ones.
const OPTIMIZER_FILE_BYTES: u64 = 2 << 30;

/// Largest `state.json` that is read: `limits::UNACKNOWLEDGED_STEPS` events of some 300 bytes fit well.
const STATE_BYTES: u64 = 16 << 20;

/// Room asked for beside the tensors: headers, configuration and tokenizer files are far below it as a rule.
const COMPANION_BYTES: u64 = 32 << 20;

/// `state.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of this structure: 1.
    pub version: u32,
    /// Steps done: also the place in the schedule.
    pub step: u64,
    /// Steps that moved the weights: the optimizer's own count.
    pub updates: u64,
    /// Steps left out.
    pub skipped: u64,
    /// Steps left out in a row, up to now.
    pub skipped_in_a_row: u32,
    /// Rows drawn: the next step starts at this position of the run.
    pub cursor: u64,
    /// Tokens trained on, padding excluded.
    pub tokens: u64,
    /// The model the run began from (of an adapter: its base).
    pub model_fingerprint: String,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// Step events that were not yet known to be journaled; a restored run sends them first.
    pub unacknowledged: Vec<event::Step>,
}

impl Rank {
    /// Writes this rank's whole state as a checkpoint; durable when this returns.
    /// Errors: those of the disk; the run itself is unharmed and can go on.
    pub fn save(&self, writer: Writer<'_>, unacknowledged: &[event::Step]) -> Outcome<Manifest> {
        let mut writer = writer.expecting(self.state_bytes() + COMPANION_BYTES)?;
        self.save_weights(&mut writer)?;
        self.save_optimizer(&mut writer)?;
        for (name, path) in tokenizer_files(&self.plan.model.tokenizer)? {
            writer.file(&name, |out| copy_file(&path, out))?;
        }
        let state =
            serde_json::to_vec_pretty(&self.state(unacknowledged)).map_err(|e| Problem::internal(e.to_string()))?;
        writer.file("state.json", |out| Ok(out.write_all(&state)?))?;
        writer.commit()
    }

    /// The rank that wrote a checkpoint, and the step events that may not be journaled yet.
    /// Errors: `CheckpointDamaged` where its files do not fit the plan, `ModelChanged` for an adapter over another base,
    /// those of [`Rank::new`].
    pub fn restore(plan: &Plan, rank: u32, device: &Device, from: &Restore) -> Outcome<(Rank, Vec<event::Step>)> {
        let state = read_state(&from.dir)?;
        if state.model_fingerprint != plan.model.fingerprint {
            let what = "the checkpoint was made from another model than the plan names";
            return Err(Problem::new(Code::ModelChanged, what).file(&from.dir).remedy("start a new job"));
        }
        let mut rank = Rank::new(plan, rank, device, weights::restored(plan, &from.dir)?.as_ref())?;
        rank.restore_optimizer(&from.dir)?;
        rank.progress = Progress {
            step: state.step,
            updates: state.updates,
            skipped: state.skipped,
            tokens: state.tokens,
            guard: Guard::new(state.skipped_in_a_row),
        };
        rank.best = state.best;
        Ok((rank, state.unacknowledged))
    }

    fn state(&self, unacknowledged: &[event::Step]) -> State {
        let Progress { step, updates, skipped, tokens, guard } = self.progress;
        State {
            version: 1,
            step,
            updates,
            skipped,
            skipped_in_a_row: guard.skipped_in_a_row(),
            cursor: crate::batch::positions(&self.plan.run, step).start,
            tokens,
            model_fingerprint: self.plan.model.fingerprint.clone(),
            best: self.best,
            unacknowledged: unacknowledged.to_vec(),
        }
    }

    /// Bytes of weights and optimizer state to be written.
    fn state_bytes(&self) -> u64 {
        let parameters = self.model.parameters();
        let tensors = parameters.iter().map(|p| &p.weight).chain(self.optimizer.state(parameters).map(|(_, _, b)| b));
        tensors.map(|b| 4 * b.len() as u64).sum()
    }

    fn save_weights(&self, writer: &mut Writer<'_>) -> Outcome<()> {
        let text = |writer: &mut Writer<'_>, name: &str, text: String| {
            writer.file(name, |out| Ok(out.write_all(text.as_bytes())?))
        };
        let config = &self.plan.model.config;
        match &self.plan.method {
            Method::Full => {
                text(writer, "config.json", config_json(config, self.special_ids, "float32"))?;
                text(writer, "generation_config.json", generation_config_json(config, self.special_ids))?;
            }
            Method::Lora { rank, alpha, dropout, targets } => {
                let (rank, alpha, dropout, targets) = (*rank, *alpha, *dropout, targets.clone());
                let base = base_name(&self.plan);
                text(
                    writer,
                    "adapter_config.json",
                    adapter::config_json(&AdapterConfig { rank, alpha, dropout, targets, base }),
                )?;
            }
        }
        let name = if self.plan.method == Method::Full { "model.safetensors" } else { "adapter_model.safetensors" };
        let parameters = self.model.parameters();
        let tensors: Vec<_> = parameters.iter().map(|p| (p.tensor.name.clone(), p, &p.weight)).collect();
        save_tensors(writer, name, &tensors, self.model.stream())
    }

    fn save_optimizer(&self, writer: &mut Writer<'_>) -> Outcome<()> {
        let tensors: Vec<_> = self.optimizer.state(self.model.parameters()).collect();
        for (i, file) in split(&tensors, OPTIMIZER_FILE_BYTES).into_iter().enumerate() {
            save_tensors(writer, &optimizer_file(i), file, self.model.stream())?;
        }
        Ok(())
    }

    fn restore_optimizer(&mut self, folder: &Path) -> Outcome<()> {
        let tensors: Vec<_> = self.optimizer.state(self.model.parameters()).collect();
        for (i, expected) in split(&tensors, OPTIMIZER_FILE_BYTES).into_iter().enumerate() {
            let path = folder.join(optimizer_file(i));
            let file = File::open(&path)?;
            for tensor in expected {
                load_tensor(&file, &path, tensor, self.model.stream())?;
            }
        }
        Ok(())
    }
}

/// A tensor of a file: its name, the parameter whose shape it has, where it lies.
type Tensor<'a> = (String, &'a Parameter, &'a Buffer);

/// Cuts tensors into files of at most `most` bytes; one that is larger has a file of its own.
fn split<'a, 'b>(tensors: &'b [Tensor<'a>], most: u64) -> Vec<&'b [Tensor<'a>]> {
    let (mut files, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (i, (_, _, buffer)) in tensors.iter().enumerate() {
        let own = 4 * buffer.len() as u64;
        if i > start && bytes + own > most {
            files.push(&tensors[start..i]);
            (start, bytes) = (i, 0);
        }
        bytes += own;
    }
    files.push(&tensors[start..]);
    files
}

fn optimizer_file(index: usize) -> String {
    format!("optimizer-{:05}.safetensors", index + 1)
}

fn save_tensors(writer: &mut Writer<'_>, name: &str, tensors: &[Tensor<'_>], stream: &Stream) -> Outcome<()> {
    let specs: Vec<TensorSpec> = tensors
        .iter()
        .map(|(name, p, _)| TensorSpec { name: name.clone(), dtype: Dtype::F32, shape: p.tensor.shape.clone() })
        .collect();
    writer.file(name, |out| {
        safetensors::write(out, Path::new(name), &specs, &mut |i| Ok(stream.to_host(tensors[i].2)))?;
        Ok(())
    })
}

fn load_tensor(file: &File, path: &Path, (name, parameter, buffer): &Tensor<'_>, stream: &Stream) -> Outcome<()> {
    let view = file.tensor(name).filter(|v| v.spec.shape == parameter.tensor.shape).ok_or_else(|| {
        let what = format!("the optimizer state of {} is missing or has another shape", parameter.tensor.name);
        Problem::new(Code::CheckpointDamaged, what).file(path).tensor(name.clone())
    })?;
    let mut values = vec![0.0; buffer.len()];
    view.read_f32(&mut values)?;
    stream.copy_from_host(buffer, &values);
    Ok(())
}

/// The model that a checkpoint's run began from, by its fingerprint; `None` where the folder is no checkpoint of ours.
pub fn model_fingerprint(folder: &Path) -> Option<String> {
    read_state(folder).ok().map(|state| state.model_fingerprint)
}

fn read_state(folder: &Path) -> Outcome<State> {
    let path = folder.join("state.json");
    let unreadable = |e: std::io::Error| Problem::io(&e, "reading a checkpoint's state", &path);
    let mut text = Vec::new();
    let file = std::fs::File::open(&path).map_err(unreadable)?;
    file.take(STATE_BYTES).read_to_end(&mut text).map_err(unreadable)?;
    let damaged = |why: String| {
        Problem::new(Code::CheckpointDamaged, "the state of the checkpoint cannot be understood").why(why).file(&path)
    };
    let state: State = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
    if state.version != 1 {
        return Err(damaged(format!("version {} is not known", state.version)));
    }
    Ok(state)
}

fn copy_file(path: &PathBuf, out: &mut dyn Write) -> Result<(), WriteFailure> {
    std::io::copy(&mut std::fs::File::open(path)?, out)?;
    Ok(())
}

/// What an adapter calls its base.
fn base_name(plan: &Plan) -> String {
    match &plan.model.source {
        ModelSource::Folder { path } => path.display().to_string(),
        ModelSource::Scratch => String::new(),
    }
}
