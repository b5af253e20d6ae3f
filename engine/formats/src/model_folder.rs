//! Model folders in the Hugging Face layout (a checkpoint of ours is one too): `config.json`, weights, tokenizer files.

use protocol::Outcome;
use protocol::facts::{ModelConfig, ModelFacts};
use std::path::{Path, PathBuf};

/// An open model folder: configuration, shards and every tensor have been checked against each other.
pub struct ModelFolder;

/// Ids of special tokens that `config.json` names besides the end token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// bos_token_id.
    pub bos: Option<u32>,
    /// pad_token_id.
    pub pad: Option<u32>,
}

impl ModelFolder {
    /// Opens and checks a folder.
    pub fn open(path: &Path) -> Outcome<ModelFolder> {
        todo!("{path:?}")
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        todo!()
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        todo!()
    }

    /// Ids of `config.json` besides the end token.
    pub fn special_ids(&self) -> SpecialIds {
        todo!()
    }

    /// Facts for people and the planner.
    pub fn facts(&self) -> ModelFacts {
        todo!()
    }

    /// The files that hold weights, sorted by name; fingerprints are made over these.
    pub fn weight_files(&self) -> Vec<PathBuf> {
        todo!()
    }

    /// Reads a parameter as f32 under its Hugging Face name (`lm_head.weight` of a tied model is the embedding).
    pub fn read_f32(&self, name: &str, out: &mut [f32]) -> Outcome<()> {
        todo!("{name} {}", out.len())
    }
}

/// Text of a `config.json` that transformers 4 and 5 load; weights are said to be `dtype` ("float32", …).
pub fn config_json(config: &ModelConfig, ids: SpecialIds, dtype: &str) -> String {
    todo!("{config:?} {ids:?} {dtype}")
}

/// Text of a `generation_config.json`.
pub fn generation_config_json(config: &ModelConfig, ids: SpecialIds) -> String {
    todo!("{config:?} {ids:?}")
}

/// The tokenizer and template files of a folder: (name, path), sorted by name. Links and special files are left out.
pub fn tokenizer_files(folder: &Path) -> Outcome<Vec<(String, PathBuf)>> {
    todo!("{folder:?}")
}

/// Copies the tokenizer and template files of `from` into `to`; gives their names.
pub fn copy_tokenizer(from: &Path, to: &Path) -> Outcome<Vec<String>> {
    todo!("{from:?} {to:?}")
}
