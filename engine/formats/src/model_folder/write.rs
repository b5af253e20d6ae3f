//! What a model folder of ours holds besides its weights; transformers 4.57 and 5 load it.

use super::{SpecialIds, rope};
use crate::files::Files;
use crate::folder::Folder;
use protocol::facts::ModelConfig;
use protocol::{Outcome, Problem, limits};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Files that belong to a tokenizer, and the most bytes of each.
const TOKENIZER_FILES: [(&str, u64); 8] = [
    ("added_tokens.json", limits::CONFIG_BYTES),
    ("chat_template.jinja", limits::CONFIG_BYTES),
    ("merges.txt", limits::TOKENIZER_BYTES),
    ("special_tokens_map.json", limits::CONFIG_BYTES),
    ("tokenizer.json", limits::TOKENIZER_BYTES),
    ("tokenizer.model", limits::TOKENIZER_BYTES),
    ("tokenizer_config.json", limits::CONFIG_BYTES),
    ("vocab.json", limits::TOKENIZER_BYTES),
];

/// Text of a `config.json`; the weights beside it are of `dtype` ("float32", "bfloat16", "float16").
pub fn config_json(config: &ModelConfig, ids: SpecialIds, dtype: &str) -> String {
    let value = json!({
        "architectures": [config.architecture],
        "attention_bias": config.attention_bias,
        "attention_dropout": 0.0,
        "bos_token_id": ids.bos,
        "dtype": dtype,
        "eos_token_id": ends(config),
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden,
        "initializer_range": config.initializer_range,
        "intermediate_size": config.intermediate,
        "max_position_embeddings": config.context,
        "mlp_bias": config.mlp_bias,
        "model_type": "llama",
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
        "pad_token_id": ids.pad,
        "pretraining_tp": 1,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_scaling": rope::written(config.rope_scaling),
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tied,
        "use_cache": true,
        "vocab_size": config.vocab,
    });
    pretty(&value)
}

/// Text of a `generation_config.json`.
pub fn generation_config_json(config: &ModelConfig, ids: SpecialIds) -> String {
    let all = [("bos_token_id", json!(ids.bos)), ("eos_token_id", ends(config)), ("pad_token_id", json!(ids.pad))];
    let known = all.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.to_owned(), v));
    pretty(&Value::Object(known.collect()))
}

/// The tokenizer and template files of a folder: (name, path), sorted by name. Links out of the folder are refused.
pub fn tokenizer_files(folder: &Path) -> Outcome<Vec<(String, PathBuf)>> {
    let opened = Folder::open(folder)?;
    let there = TOKENIZER_FILES.iter().filter(|(name, _)| opened.has(name));
    there.map(|(name, _)| opened.file(name).map(|_| (name.to_string(), folder.join(name)))).collect()
}

/// Hash of the tokenizer and template files of a folder or GGUF file.
pub fn tokenizer_fingerprint(path: &Path) -> Outcome<String> {
    if !crate::gguf::is_gguf(path) {
        let files = tokenizer_files(path)?.into_iter().map(|(_, path)| path).collect::<Vec<_>>();
        return crate::fingerprint::files(&files);
    }
    let source = Files::open(path)?;
    let mut hash = Xxh3::new();
    for (name, limit) in TOKENIZER_FILES {
        if source.has(name) {
            let bytes = source.read(name, limit)?;
            hash.update(name.as_bytes());
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(&bytes);
        }
    }
    Ok(format!("{:032x}", hash.digest128()))
}

/// Copies the tokenizer and template files of `from` into `to`, synchronised to disk; gives their names. Those of a GGUF
/// file are made from what it says.
pub fn copy_tokenizer(from: &Path, to: &Path) -> Outcome<Vec<String>> {
    let source = Files::open(from)?;
    let mut copied = Vec::new();
    for (name, limit) in TOKENIZER_FILES {
        if source.has(name) {
            put(&to.join(name), &source.read(name, limit)?)?;
            copied.push(name.to_owned());
        }
    }
    Ok(copied)
}

/// Writes a small file and synchronises it.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|e| Problem::io(&e, "writing the file", path))
}

/// One id as a number, several as a list, none as null.
fn ends(config: &ModelConfig) -> Value {
    match config.eos[..] {
        [] => Value::Null,
        [one] => json!(one),
        ref several => json!(several),
    }
}

pub(crate) fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}
