//! Model folders in the Hugging Face layout (a checkpoint of ours is one too): `config.json`, weights, tokenizer files.
//!
//! Not here: what a tokenizer says (`tokenizer`), adapters (`adapter`), manifests and checksums (`store`).

mod config;
mod fields;
mod rope;
mod shards;
mod words;
mod write;

pub use config::SpecialIds;
pub use write::{config_json, copy_tokenizer, generation_config_json, tokenizer_files};
pub(crate) use write::{pretty, put};

use crate::folder::Folder;
use protocol::facts::{ModelConfig, ModelFacts};
use protocol::{Code, Outcome, Problem};
use shards::Shards;
use std::path::{Path, PathBuf};

/// An open model folder: configuration, shards and every tensor have been checked against each other.
#[derive(Debug)]
pub struct ModelFolder {
    folder: Folder,
    config: ModelConfig,
    ids: SpecialIds,
    shards: Shards,
}

impl ModelFolder {
    /// Opens and checks a folder; no weights are read. Errors: `ConfigInvalid`, `ArchitectureUnknown`, `NotSupported`,
    /// `TensorMismatch`, `CodeInFile`, `PathOutside`, `TokenizerInvalid` and all of `safetensors::File::open`.
    pub fn open(path: &Path) -> Outcome<ModelFolder> {
        let folder = Folder::open(path)?;
        let (config, ids) = config::read(&folder)?;
        let shards = Shards::open(&folder, &config)?;
        words::check(&folder, config.vocab)?;
        Ok(ModelFolder { folder, config, ids, shards })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Ids of `config.json` besides the end token.
    pub fn special_ids(&self) -> SpecialIds {
        self.ids
    }

    /// Facts for people and the planner.
    pub fn facts(&self) -> ModelFacts {
        let c = &self.config;
        ModelFacts {
            architecture: c.architecture.clone(),
            parameters: c.parameters(),
            dtype: self.shards.dtype(),
            layers: c.layers,
            hidden: c.hidden,
            heads: c.heads,
            kv_heads: c.kv_heads,
            vocab: c.vocab,
            context: c.context,
            tied: c.tied,
            bytes: self.shards.bytes(),
            tokenizer: self.folder.has("tokenizer.json"),
            chat_template: words::has_template(&self.folder),
            config: c.clone(),
        }
    }

    /// The files that hold weights, sorted by name; fingerprints are made over these.
    pub fn weight_files(&self) -> Vec<PathBuf> {
        self.shards.paths()
    }

    /// Reads a parameter as f32 under its Hugging Face name (`lm_head.weight` of a tied model is the embedding).
    /// Errors: `TensorMismatch`, `FileTruncated`, a failed read.
    pub fn read_f32(&self, name: &str, out: &mut [f32]) -> Outcome<()> {
        let name = if self.config.tied && name == HEAD { EMBEDDING } else { name };
        match self.shards.tensor(name) {
            Some(tensor) => tensor.read_f32(out),
            None => Err(Problem::new(Code::TensorMismatch, format!("{name} is not in the model"))
                .file(self.path())
                .tensor(name)),
        }
    }
}

/// Name of the embedding.
const EMBEDDING: &str = "model.embed_tokens.weight";
/// Name of the output head.
const HEAD: &str = "lm_head.weight";

#[cfg(test)]
mod tests;
