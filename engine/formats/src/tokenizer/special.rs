//! Which tokens begin, end and pad, and which are control tokens at all.

use crate::files::Files;
use protocol::{Code, Outcome, Problem, limits};
use serde_json::Value;
use std::collections::HashSet;

/// A control token by name and id.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub text: String,
    pub id: u32,
}

/// All that is known of control tokens.
pub(super) struct Special {
    pub bos: Option<Token>,
    pub eos: Option<Token>,
    pub pad: Option<Token>,
    /// Texts, longest first, so that the first match is the whole one.
    pub texts: Vec<String>,
    pub ids: HashSet<u32>,
    /// Those that are looked for in normalised text; marks cannot keep them plain.
    pub normalized: HashSet<u32>,
}

impl Special {
    pub fn read(folder: &Files, inner: &tokenizers::Tokenizer) -> Outcome<Special> {
        let added = inner.get_added_tokens_decoder();
        let special = || added.iter().filter(|(_, t)| t.special && !t.content.is_empty());
        let mut texts: Vec<String> = special().map(|(_, t)| t.content.clone()).collect();
        texts.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        let sources = Sources {
            names: [object(folder, "tokenizer_config.json")?, object(folder, "special_tokens_map.json")?],
            config: object(folder, "config.json")?,
        };
        Ok(Special {
            bos: sources.token("bos_token", inner),
            eos: sources.token("eos_token", inner),
            pad: sources.token("pad_token", inner),
            ids: special().map(|(id, _)| *id).collect(),
            normalized: special().filter(|(_, t)| t.normalized).map(|(id, _)| *id).collect(),
            texts,
        })
    }
}

struct Sources {
    names: [Value; 2],
    config: Value,
}

impl Sources {
    /// The token under a key: by its name, else by an id of `config.json`.
    fn token(&self, key: &str, inner: &tokenizers::Tokenizer) -> Option<Token> {
        let named = self.names.iter().find_map(|file| {
            let text = name(file, key)?;
            Some(Token { text: text.to_owned(), id: inner.token_to_id(text)? })
        });
        named.or_else(|| {
            let value = self.config.get(format!("{key}_id"))?;
            let id = value.as_u64().or_else(|| value.get(0)?.as_u64()).and_then(|id| u32::try_from(id).ok())?;
            Some(Token { text: inner.id_to_token(id)?, id })
        })
    }
}

/// Texts of special tokens as the files beside a tokenizer name them.
pub(crate) fn names<const N: usize>(folder: &Files, keys: [&str; N]) -> Outcome<[Option<String>; N]> {
    let files = [object(folder, "tokenizer_config.json")?, object(folder, "special_tokens_map.json")?];
    Ok(keys.map(|key| files.iter().find_map(|file| name(file, key)).map(str::to_owned)))
}

/// A token is named by its text, or by an object with `content`.
fn name<'a>(file: &'a Value, key: &str) -> Option<&'a str> {
    let value = file.get(key)?;
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// A JSON object beside the tokenizer; null when there is none.
fn object(folder: &Files, name: &str) -> Outcome<Value> {
    if !folder.has(name) {
        return Ok(Value::Null);
    }
    let bytes = folder.read(name, limits::CONFIG_BYTES)?;
    serde_json::from_slice(&bytes).map_err(|e| {
        Problem::new(Code::TokenizerInvalid, format!("{name} is not JSON"))
            .why(e.to_string())
            .line(e.line() as u64)
            .file(&folder.place(name))
    })
}
