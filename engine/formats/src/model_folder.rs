//! Model folders in the Hugging Face layout (a checkpoint of ours is one too): `config.json`, weights, tokenizer files; and
//! GGUF files, which hold all of that in one.
//!
//! Not here: what a tokenizer says (`tokenizer`), adapters (`adapter`), manifests and checksums (`store`).

mod config;
mod fields;
mod rope;
mod shards;
mod words;
mod write;

pub use config::SpecialIds;
pub(crate) use config::parse as parse_config;
pub use write::{config_json, copy_tokenizer, generation_config_json, tokenizer_files, tokenizer_fingerprint};
pub(crate) use write::{pretty, put};

use crate::folder::Folder;
use crate::gguf;
use protocol::facts::{ModelConfig, ModelFacts};
use protocol::{Code, Outcome, Problem};
use shards::Shards;
use std::path::{Path, PathBuf};

/// An open model: configuration, weight files and every tensor have been checked against each other.
#[derive(Debug)]
pub struct ModelFolder {
    source: Source,
}

/// Where a model lies.
#[derive(Debug)]
enum Source {
    Folder { folder: Folder, config: ModelConfig, ids: SpecialIds, shards: Shards },
    Gguf(gguf::Model),
}

impl ModelFolder {
    /// Opens and checks a folder or a GGUF file, whatever its name; no weights are read. Errors: `ConfigInvalid`,
    /// `ArchitectureUnknown`, `NotSupported`, `TensorMismatch`, `CodeInFile`, `PathOutside`, `TokenizerInvalid` and all of
    /// `safetensors::File::open` and `gguf::File::open`.
    pub fn open(path: &Path) -> Outcome<ModelFolder> {
        if gguf::is_gguf(path) {
            return Ok(ModelFolder { source: Source::Gguf(gguf::Model::open(path)?) });
        }
        let folder = Folder::open(path)?;
        let (config, ids) = config::read(&folder)?;
        let shards = Shards::open(&folder, &config)?;
        words::check(&folder, config.vocab)?;
        Ok(ModelFolder { source: Source::Folder { folder, config, ids, shards } })
    }

    /// The folder, or the file.
    pub fn path(&self) -> &Path {
        match &self.source {
            Source::Folder { folder, .. } => folder.path(),
            Source::Gguf(model) => model.path(),
        }
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        match &self.source {
            Source::Folder { config, .. } => config,
            Source::Gguf(model) => model.config(),
        }
    }

    /// Ids of `config.json` besides the end token.
    pub fn special_ids(&self) -> SpecialIds {
        match &self.source {
            Source::Folder { ids, .. } => *ids,
            Source::Gguf(model) => model.special_ids(),
        }
    }

    /// Facts for people and the planner.
    pub fn facts(&self) -> ModelFacts {
        let c = self.config();
        let (dtype, bytes, tokenizer, chat_template, notes) = match &self.source {
            Source::Folder { folder, shards, .. } => {
                (shards.dtype(), shards.bytes(), folder.has("tokenizer.json"), words::has_template(folder), Vec::new())
            }
            Source::Gguf(model) => {
                (model.kind().name(), model.bytes(), model.has_tokenizer(), model.has_template(), model.notes())
            }
        };
        ModelFacts {
            architecture: c.architecture.clone(),
            parameters: c.parameters(),
            dtype,
            layers: c.layers,
            hidden: c.hidden,
            heads: c.heads,
            kv_heads: c.kv_heads,
            vocab: c.vocab,
            context: c.context,
            tied: c.tied,
            bytes,
            tokenizer,
            chat_template,
            notes,
            config: c.clone(),
        }
    }

    /// The files that hold weights, sorted by name; fingerprints are made over these.
    pub fn weight_files(&self) -> Vec<PathBuf> {
        match &self.source {
            Source::Folder { shards, .. } => shards.paths(),
            Source::Gguf(model) => model.weight_files(),
        }
    }

    /// Reads a parameter as f32 under its Hugging Face name (`lm_head.weight` of a tied model is the embedding).
    /// Errors: `TensorMismatch`, `FileTruncated`, a failed read.
    pub fn read_f32(&self, name: &str, out: &mut [f32]) -> Outcome<()> {
        let name = if self.config().tied && name == HEAD { EMBEDDING } else { name };
        let shards = match &self.source {
            Source::Folder { shards, .. } => shards,
            Source::Gguf(model) => return model.read_f32(name, out),
        };
        match shards.tensor(name) {
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
