//! The model that a verb speaks with, measures or writes: a folder, a checkpoint, or an adapter over its base.
//!
//! Not here: a run's model, which its plan names (`run/open.rs`).

use crate::checkpoint;
use crate::weights::{WeightSource, WithAdapter};
use formats::adapter::{self, Adapter, AdapterConfig};
use formats::fingerprint;
use formats::model_folder::ModelFolder;
use kernels::Device;
use protocol::facts::ModelConfig;
use protocol::plan::Method;
use protocol::{Code, Outcome, Problem};
use std::path::{Path, PathBuf};

/// An open model.
pub struct Subject {
    /// Its shape.
    pub config: ModelConfig,
    /// With or without an adapter.
    pub method: Method,
    /// Its values.
    pub weights: Box<dyn WeightSource>,
    /// The base: a folder or a GGUF file.
    pub base: PathBuf,
    /// The adapter and its folder.
    pub adapter: Option<(PathBuf, AdapterConfig)>,
}

impl Subject {
    /// Opens `model`, or `adapter` over `model`. Where `model` is itself an adapter, its base is `base`, else the one that
    /// adapter_config.json names.
    /// Errors: `NotFound` naming a base that is not there; those of the files read.
    pub fn open(model: &Path, adapter: Option<&Path>, base: Option<&Path>) -> Outcome<Subject> {
        if let Some(adapter) = adapter {
            return Subject::with_adapter(model.to_path_buf(), adapter);
        }
        if adapter::is_adapter(model).unwrap_or(false) {
            let base = match base {
                Some(base) => base.to_path_buf(),
                None => base_of(model)?,
            };
            return Subject::with_adapter(base, model);
        }
        let folder = ModelFolder::open(model)?;
        Ok(Subject {
            config: folder.config().clone(),
            method: Method::Full,
            weights: Box::new(folder),
            base: model.to_path_buf(),
            adapter: None,
        })
    }

    fn with_adapter(base: PathBuf, folder: &Path) -> Outcome<Subject> {
        let model = ModelFolder::open(&base)?;
        let config = model.config().clone();
        let adapter = Adapter::open(folder)?;
        adapter.check(&config)?;
        let found = adapter.config.clone();
        let method =
            Method::Lora { rank: found.rank, alpha: found.alpha, dropout: 0.0, targets: found.targets.clone() };
        let weights = Box::new(WithAdapter { base: Box::new(model), adapter: Box::new(adapter) });
        Ok(Subject { config, method, weights, base, adapter: Some((folder.to_path_buf(), found)) })
    }

    /// Where tokenizer and template are: in the adapter's own folder where it has one, else with the base.
    pub fn words_folder(&self) -> &Path {
        match &self.adapter {
            Some((folder, _)) if folder.join("tokenizer.json").is_file() => folder,
            _ => &self.base,
        }
    }
}

/// The base that an adapter names, a folder or a GGUF file: absolute, or from the adapter's own folder on. Where a checkpoint of ours
/// knows the base's fingerprint, another model in that place is refused.
fn base_of(folder: &Path) -> Outcome<PathBuf> {
    let named = Adapter::open(folder)?.config.base;
    let path = folder.join(&named);
    let refused = |code, what: String| {
        Err(Problem::new(code, what)
            .file(&folder.join("adapter_config.json"))
            .field("base_model_name_or_path")
            .kept("the adapter is untouched")
            .remedy("put the base back in its place, or name it: export --base BASE, generate --model BASE --adapter ADAPTER"))
    };
    if named.is_empty() || !path.exists() {
        return refused(Code::NotFound, format!("the base model \"{named}\" of this adapter is not here"));
    }
    if let Some(known) = checkpoint::model_fingerprint(folder) {
        let found = fingerprint::files(&ModelFolder::open(&path)?.weight_files())?;
        if found != known {
            return refused(Code::ModelChanged, format!("\"{named}\" is not the model this adapter was trained over"));
        }
    }
    Ok(path)
}

/// The CPU with all its threads.
pub fn cpu() -> Device {
    Device::cpu(std::thread::available_parallelism().map_or(1, usize::from))
}
