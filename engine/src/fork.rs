//! A new job from a kept step of an old one: the checkpoint is copied and verified, the plan is made anew from the changed
//! wish, and the first attempt restores that step.

use crate::engine::{Engine, OnLine, read_bounded};
use formats::model_folder::ModelFolder;
use protocol::facts::ModelConfig;
use protocol::plan::{Method, ModelSource, Plan};
use protocol::problem::{Code, Outcome, Problem};
use std::io::{Read, Write};
use std::path::Path;
use store::checkpoint::{self, Restore};
use store::disk::RealDisk;
use store::run::RunFolder;

/// Bytes copied at once: large enough for full disk speed, small beside any model.
const PIECE: usize = 1 << 20;
/// File of a checkpoint that holds everything but tensors.
const STATE: &str = "state.json";
/// Most bytes of it: a full list of step events that wait for the journal, with room.
const STATE_BYTES: u64 = 16 << 20;

impl Engine {
    /// Forks job `id` at `step` with changed settings (paths relative to `base`). Returns the new job's id.
    /// Errors: `NotFound` for a step that is not kept, `SettingInvalid` where a change does not fit the checkpoint.
    pub fn fork(&mut self, id: &str, step: u64, changes: &[String], base: &Path, on_line: OnLine) -> Outcome<String> {
        let old = self.run_folder(id)?;
        let kept = checkpoint::list(&RealDisk, &old.checkpoints())?;
        let Some(row) = kept.iter().find(|c| c.step == step && c.complete) else {
            let steps: Vec<String> = kept.iter().filter(|c| c.complete).map(|c| c.step.to_string()).collect();
            return Err(Problem::new(Code::NotFound, format!("{id} keeps no checkpoint of step {step}"))
                .remedy(format!("kept steps: {}", if steps.is_empty() { "none".into() } else { steps.join(", ") })));
        };
        base_is_there(&old.plan()?)?;
        let spec = old.spec()?.changed(changes, base)?;
        let plan =
            if changes.iter().all(|c| c.starts_with("name=")) { old.plan()? } else { self.plan(&spec, None, on_line)? };
        fits(&old.plan()?, &plan, step)?;
        self.tokens_are_there(&old)?;
        let kept = Restore::open(&RealDisk, &old.checkpoints().join(checkpoint::folder_name(row.step)))?;
        let run = self.create_run(&spec, &plan)?;
        let started = adopt(&kept, &run).and_then(|()| crate::supervisor::launch(self.home().path(), run.path()));
        if let Err(problem) = started {
            let _ = std::fs::remove_dir_all(run.path());
            return Err(problem);
        }
        Ok(run.id().to_owned())
    }
}

/// An adapter says nothing without the weights it was trained over.
/// Errors: `NotFound` where the base is gone, `ModelChanged` where another model is in its place.
fn base_is_there(plan: &Plan) -> Outcome<()> {
    let (Method::Lora { .. }, ModelSource::Folder { path }) = (&plan.method, &plan.model.source) else {
        return Ok(());
    };
    let refused = |code, what: String| {
        Problem::new(code, what).file(path).kept("every checkpoint").remedy("bring the base back as it was")
    };
    let name = path.display();
    let found = ModelFolder::open(path)
        .map_err(|problem| refused(Code::NotFound, format!("the base model {name} is gone")).why(problem.sentence()))?;
    if formats::fingerprint::files(&found.weight_files())? != plan.model.fingerprint {
        let what = format!("the base model {name} has changed since the job was planned");
        return Err(refused(Code::ModelChanged, what).why("its adapter was trained over other weights"));
    }
    Ok(())
}

/// Copies a verified checkpoint into a new run, under a manifest of its own.
fn adopt(kept: &Restore, run: &RunFolder) -> Outcome<()> {
    let mut writer = checkpoint::Writer::begin(&RealDisk, &run.checkpoints(), kept.step, run.id())?
        .expecting(kept.manifest.bytes())?;
    for file in &kept.manifest.files {
        let path = kept.file(&file.name)?;
        if file.name == STATE {
            let state = without_events(&path)?;
            writer.file(&file.name, |out| Ok(out.write_all(&state)?))?;
        } else {
            writer.file(&file.name, |out| copy(&path, out))?;
        }
    }
    writer.commit().map(drop)
}

fn copy(path: &Path, out: &mut dyn Write) -> Result<(), checkpoint::WriteFailure> {
    let mut source = std::fs::File::open(path)?;
    let mut piece = vec![0; PIECE];
    loop {
        match source.read(&mut piece)? {
            0 => return Ok(()),
            n => out.write_all(&piece[..n])?,
        }
    }
}

/// The state of a checkpoint without the step events that wait for the old run's journal: they are not the fork's.
fn without_events(path: &Path) -> Outcome<Vec<u8>> {
    let text = read_bounded(path, STATE_BYTES)?;
    let mut state: serde_json::Value = serde_json::from_str(&text).map_err(|e| {
        Problem::new(Code::CheckpointDamaged, "the checkpoint's state is not JSON").why(e.to_string()).file(path)
    })?;
    state["unacknowledged"] = serde_json::json!([]);
    serde_json::to_vec(&state).map_err(|e| Problem::internal(e.to_string()))
}

/// A checkpoint serves a plan of the same shape and method that has steps left.
fn fits(old: &Plan, new: &Plan, step: u64) -> Outcome<()> {
    let shape = |c: &ModelConfig| c.tensors();
    let refuse = |field: &str, what: String| Err(Problem::new(Code::SettingInvalid, what).field(field));
    if shape(&old.model.config) != shape(&new.model.config) || old.model.fingerprint != new.model.fingerprint {
        return refuse("model", "a fork keeps its model: this change names another one".into());
    }
    let adapter = |m: &Method| match m {
        Method::Full => None,
        Method::Lora { rank, targets, .. } => Some((*rank, targets.clone())),
    };
    if adapter(&old.method) != adapter(&new.method) {
        return refuse(
            "model.adapter",
            "a fork keeps what it trains: the adapter's rank and targets cannot change".into(),
        );
    }
    if new.run.steps <= step {
        return refuse("run", format!("the fork would have {} steps, but step {step} is already done", new.run.steps));
    }
    Ok(())
}
