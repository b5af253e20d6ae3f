//! The tokenizer and the template of a model folder, as far as they can be judged before a sandbox opens them: whether the
//! tokenizer's file is whole, whether every id of it has a row in the embedding, whether there is a template.
//!
//! Not here: what a tokenizer or a template says (`tokenizer`, `template`).

use crate::folder::Folder;
use protocol::{Code, Outcome, Problem, limits};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

const TOKENIZER: &str = "tokenizer.json";

/// Holds a tokenizer against an embedding of `rows` rows; none is fine, and so is a smaller one.
/// Errors: `TokenizerInvalid`, `TooLarge`, `PathOutside`.
pub(super) fn check(folder: &Folder, rows: u32) -> Outcome<()> {
    if !folder.has(TOKENIZER) {
        return Ok(());
    }
    let path = folder.path().join(TOKENIZER);
    let words: Words = serde_json::from_slice(&folder.read(TOKENIZER, limits::TOKENIZER_BYTES)?).map_err(|e| {
        let what = if e.is_data() {
            "tokenizer.json is damaged: it does not hold what a tokenizer does"
        } else {
            "tokenizer.json is damaged or cut: it is not JSON"
        };
        Problem::new(Code::TokenizerInvalid, what)
            .why(e.to_string())
            .line(e.line() as u64)
            .file(&path)
            .remedy("copy or download the file again")
    })?;
    match words.entries() {
        entries if entries > u64::from(rows) => {
            let what = format!("the tokenizer has {entries} entries, and the model's embedding only {rows} rows");
            Err(Problem::new(Code::TokenizerInvalid, what)
                .why("a text with one of the other tokens could not be looked up")
                .file(&path)
                .remedy("take the tokenizer.json that belongs to these weights, or remove the tokens that were added"))
        }
        _ => Ok(()),
    }
}

/// Whether there is a template for chats: in a file of its own, or in `tokenizer_config.json`, alone or as the "default"
/// of a list.
pub(super) fn has_template(folder: &Folder) -> bool {
    let configured = || {
        let bytes = folder.read("tokenizer_config.json", limits::CONFIG_BYTES).ok()?;
        let value: Value = serde_json::from_slice(&bytes).ok()?;
        Some(match value.get("chat_template")? {
            Value::String(_) => true,
            Value::Array(all) => all.iter().any(|one| one["name"] == "default" && one["template"].is_string()),
            _ => false,
        })
    };
    folder.has("chat_template.jinja") || configured().unwrap_or(false)
}

/// The part of a `tokenizer.json` that gives ids.
#[derive(Deserialize)]
struct Words {
    #[serde(default)]
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
}

#[derive(Default, Deserialize)]
struct Model {
    #[serde(default)]
    vocab: Entries,
}

#[derive(Deserialize)]
struct Added {
    id: u64,
}

/// One more than the highest id of a vocabulary; its texts are passed over.
#[derive(Default)]
struct Entries(u64);

impl Words {
    fn entries(&self) -> u64 {
        let added = self.added_tokens.iter().map(|token| token.id.saturating_add(1));
        added.fold(self.model.vocab.0, u64::max)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Entries, D::Error> {
        d.deserialize_any(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a vocabulary: an object of ids, or a list of pieces")
    }

    fn visit_unit<E: Error>(self) -> Result<Entries, E> {
        Ok(Entries(0))
    }

    /// Text to id.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = 0;
        while let Some((_, id)) = map.next_entry::<IgnoredAny, u64>()? {
            entries = id.saturating_add(1).max(entries);
        }
        Ok(Entries(entries))
    }

    /// Pieces in the order of their ids.
    fn visit_seq<A: SeqAccess<'de>>(self, mut pieces: A) -> Result<Entries, A::Error> {
        let mut entries = 0;
        while pieces.next_element::<IgnoredAny>()?.is_some() {
            entries += 1;
        }
        Ok(Entries(entries))
    }
}
