//! Tokenizer and chat template of a GGUF file, as the Hugging Face files that say the same.
//!
//! Not here: the way back (`vocabulary::describe`), tokenizing (`tokenizer`).

pub(super) mod describe;
mod pieces;
pub(super) mod pre;

use super::{File, Metadata, Strings, Value};
use pre::Pre;
use protocol::{Code, Outcome, Problem};
use serde_json::{Map, Value as Json, json};
use std::collections::HashSet;

/// Metadata keys.
pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
pub(super) const TEMPLATE: &str = "tokenizer.chat_template";
pub(super) const MODEL: &str = "tokenizer.ggml.model";
pub(super) const PRE: &str = "tokenizer.ggml.pre";
pub(super) const TYPES: &str = "tokenizer.ggml.token_type";
pub(super) const MERGES: &str = "tokenizer.ggml.merges";
pub(super) const SCORES: &str = "tokenizer.ggml.scores";
pub(super) const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
pub(super) const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
pub(super) const SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";

/// Kinds of tokens.
pub(super) const NORMAL: i32 = 1;
pub(super) const UNKNOWN: i32 = 2;
pub(super) const CONTROL: i32 = 3;
pub(super) const USER_DEFINED: i32 = 4;
pub(super) const UNUSED: i32 = 5;
pub(super) const BYTE: i32 = 6;

/// Roles of special tokens: the metadata's name, that of tokenizer_config.json, and the id that vocabularies with scores
/// mean where the metadata is silent.
pub(super) const ROLES: [(&str, &str, Option<u32>); 4] = [
    ("tokenizer.ggml.bos_token_id", "bos_token", Some(1)),
    ("tokenizer.ggml.eos_token_id", "eos_token", Some(2)),
    ("tokenizer.ggml.unknown_token_id", "unk_token", Some(0)),
    ("tokenizer.ggml.padding_token_id", "pad_token", None),
];

/// How text becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Byte-level pairs over words that are cut in this way.
    Bytes(Pre),
    /// Pairs by score over characters, bytes where there is none.
    Scores,
}

/// A vocabulary whose parts fit each other.
struct Vocabulary<'a> {
    metadata: &'a Metadata,
    kind: Kind,
    tokens: &'a Strings,
    types: Vec<i32>,
}

/// Checks that the tokenizer in a model's metadata can be rebuilt; a file without one is fine. `vocab` is the model's.
/// Errors: `NotSupported` naming what is not known, `TokenizerInvalid` naming what does not fit.
pub(super) fn check(metadata: &Metadata, vocab: u32) -> Outcome<()> {
    if !metadata.contains_key(TOKENS) {
        return Ok(());
    }
    let found = Vocabulary::of(metadata)?.tokens.len();
    if found > vocab as usize {
        return Err(bad(TOKENS, format!("the tokenizer has {found} tokens, the model only {vocab}")));
    }
    Ok(())
}

/// Files that a Hugging Face folder has for its tokenizer and template.
const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";
const JINJA: &str = "chat_template.jinja";

/// True where a file of this name can be made of what a GGUF file holds.
pub(crate) fn has_companion(file: &File, name: &str) -> bool {
    match name {
        TOKENIZER | CONFIG => file.metadata().contains_key(TOKENS),
        JINJA => file.metadata().contains_key(TEMPLATE),
        _ => false,
    }
}

/// The file that a Hugging Face folder would have under this name. Errors: those of `check`; `FileUnreadable` where
/// `has_companion` is false.
pub(crate) fn companion(file: &File, name: &str) -> Outcome<Vec<u8>> {
    let path = file.path();
    let vocabulary = || Vocabulary::of(file.metadata()).map_err(|p| p.file(path));
    match name {
        TOKENIZER => Ok(vocabulary()?.tokenizer().map_err(|p| p.file(path))?.to_string().into_bytes()),
        CONFIG => Ok(crate::model_folder::pretty(&vocabulary()?.config()).into_bytes()),
        JINJA => match file.metadata().get(TEMPLATE).map(Value::text) {
            Some(Some(template)) => Ok(template.as_bytes().to_vec()),
            _ => Err(bad(TEMPLATE, "the chat template is no text").file(path)),
        },
        _ => Err(Problem::new(Code::FileUnreadable, format!("the file holds nothing for {name}")).file(path)),
    }
}

fn bad(key: &str, what: impl Into<String>) -> Problem {
    Problem::new(Code::TokenizerInvalid, what)
        .field(key)
        .remedy("the file is damaged, or was made for another program; fetch it again")
}

impl<'a> Vocabulary<'a> {
    fn of(metadata: &'a Metadata) -> Outcome<Vocabulary<'a>> {
        let tokens = metadata
            .get(TOKENS)
            .and_then(Value::strings)
            .ok_or_else(|| bad(TOKENS, "the tokens of the vocabulary are no list of texts"))?;
        let kind = kind(metadata)?;
        let types = types(metadata, tokens.len())?;
        let vocabulary = Vocabulary { metadata, kind, tokens, types };
        vocabulary.check()?;
        Ok(vocabulary)
    }

    fn check(&self) -> Outcome<()> {
        let count = self.tokens.len();
        if count == 0 {
            return Err(bad(TOKENS, "the vocabulary is empty"));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = self.tokens.iter().find(|text| !seen.insert(*text)) {
            return Err(bad(TOKENS, format!("the vocabulary has the token {} twice", twice.escape_debug())));
        }
        match self.kind {
            Kind::Bytes(_) if self.metadata.get(MERGES).and_then(Value::strings).is_none() => {
                Err(bad(MERGES, "the file has no merges for its tokens"))
            }
            Kind::Scores if self.metadata.get(SCORES).and_then(Value::floats).is_none_or(|s| s.len() != count) => {
                Err(bad(SCORES, format!("the file has no scores for its {count} tokens")))
            }
            _ => Ok(()),
        }?;
        for (key, _, _) in ROLES {
            if let Some(value) = self.metadata.get(key)
                && value.whole().is_none_or(|id| id >= count as u64)
            {
                return Err(bad(key, format!("{key} is no id below {count}")));
            }
        }
        Ok(())
    }

    /// The id of a role.
    fn role(&self, key: &str) -> Option<u32> {
        let named = self.metadata.get(key).and_then(Value::whole).map(|id| id as u32);
        let usual = || ROLES.iter().find(|(k, _, _)| *k == key).and_then(|(_, _, id)| *id);
        let usual = || usual().filter(|id| self.kind == Kind::Scores && (*id as usize) < self.tokens.len());
        named.or_else(usual)
    }

    fn text(&self, id: u32) -> &'a str {
        self.tokens.get(id as usize).unwrap_or_default()
    }

    /// `tokenizer.json`.
    fn tokenizer(&self) -> Outcome<Json> {
        let shape = match self.kind {
            Kind::Bytes(pre) => {
                let mut shape = pre.shape();
                shape["model"] = self.model(self.listed_merges()?, false);
                shape["model"]["ignore_merges"] = json!(pre.takes_whole_words());
                shape
            }
            Kind::Scores => {
                let mut shape = pieces::shape(self.flag(SPACE_PREFIX, true)?);
                let scores = self.metadata.get(SCORES).and_then(Value::floats).unwrap_or_default();
                shape["model"] = self.model(pieces::merges(self.tokens, &self.types, scores)?, true);
                shape
            }
        };
        let mut all = json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": self.added(), "post_processor": self.added_tokens()?,
        });
        for part in ["normalizer", "pre_tokenizer", "decoder", "model"] {
            all[part] = shape[part].clone();
        }
        Ok(all)
    }

    fn model(&self, merges: Vec<(&'a str, &'a str)>, by_characters: bool) -> Json {
        // Added tokens behind all others need no place in the model, and no text becomes one there by being a word of it.
        let last = self.types.iter().rposition(|kind| !is_added(*kind)).map_or(0, |i| i + 1);
        let vocab: Map<String, Json> =
            self.tokens.iter().take(last).enumerate().map(|(id, text)| (text.to_owned(), json!(id))).collect();
        json!({
            "type": "BPE", "dropout": null,
            "unk_token": self.role("tokenizer.ggml.unknown_token_id").map(|id| self.text(id)),
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": by_characters, "byte_fallback": by_characters, "ignore_merges": false,
            "vocab": vocab, "merges": merges,
        })
    }

    fn listed_merges(&self) -> Outcome<Vec<(&'a str, &'a str)>> {
        let merges = self.metadata.get(MERGES).and_then(Value::strings);
        let pair = |merge: &'a str| {
            // A space stands for itself in no byte-level token.
            merge.split_once(' ').ok_or_else(|| bad(MERGES, format!("\"{}\" is no pair", merge.escape_debug())))
        };
        merges.into_iter().flat_map(Strings::iter).map(pair).collect()
    }

    fn added(&self) -> Json {
        let added = self.types.iter().enumerate().filter(|(_, kind)| is_added(**kind));
        added
            .map(|(id, kind)| {
                let mut token = added_token(self.text(id as u32), *kind);
                token["id"] = json!(id);
                token
            })
            .collect()
    }

    /// What is added to every text by itself.
    fn added_tokens(&self) -> Outcome<Json> {
        let usual = match self.kind {
            Kind::Bytes(pre) => pre.begins_texts(),
            Kind::Scores => true,
        };
        let wanted = [(ADD_BOS, usual, ROLES[0].0), (ADD_EOS, false, ROLES[1].0)];
        let [begin, end] = wanted.map(|(flag, usual, role)| -> Outcome<Option<u32>> {
            Ok(self.role(role).filter(|_| self.flag(flag, usual).unwrap_or(false)))
        });
        let (begin, end) = (begin?, end?);
        if begin.is_none() && end.is_none() {
            return Ok(Json::Null);
        }
        let special =
            |id: Option<u32>, part: u32| id.map(|id| json!({"SpecialToken": {"id": self.text(id), "type_id": part}}));
        let around = |name: &str, part: u32| -> Vec<Json> {
            let text = json!({"Sequence": {"id": name, "type_id": part}});
            [special(begin, part), Some(text), special(end, part)].into_iter().flatten().collect()
        };
        let known: Map<String, Json> = [begin, end]
            .into_iter()
            .flatten()
            .map(|id| (self.text(id).to_owned(), json!({"id": self.text(id), "ids": [id], "tokens": [self.text(id)]})))
            .collect();
        let pair: Vec<Json> = around("A", 0).into_iter().chain(around("B", 1)).collect();
        Ok(json!({"type": "TemplateProcessing", "single": around("A", 0), "pair": pair, "special_tokens": known}))
    }

    /// `tokenizer_config.json`.
    fn config(&self) -> Json {
        let decoder: Map<String, Json> = self
            .types
            .iter()
            .enumerate()
            .filter(|(_, kind)| is_added(**kind))
            .map(|(id, kind)| (id.to_string(), added_token(self.text(id as u32), *kind)))
            .collect();
        let mut config = json!({
            "added_tokens_decoder": decoder,
            "clean_up_tokenization_spaces": false,
            "tokenizer_class": "PreTrainedTokenizerFast",
        });
        for (key, name, _) in ROLES {
            if let Some(id) = self.role(key) {
                config[name] = json!(self.text(id));
            }
        }
        if let Some(context) = self.metadata.get("llama.context_length").and_then(Value::whole) {
            config["model_max_length"] = json!(context);
        }
        if let Some(template) = self.metadata.get(TEMPLATE).and_then(Value::text) {
            config["chat_template"] = json!(template);
        }
        config
    }

    fn flag(&self, key: &str, usual: bool) -> Outcome<bool> {
        match self.metadata.get(key) {
            None => Ok(usual),
            Some(value) => value.flag().ok_or_else(|| bad(key, format!("{key} is neither true nor false"))),
        }
    }
}

/// True for tokens that are looked for in a text before it is cut.
fn is_added(kind: i32) -> bool {
    matches!(kind, CONTROL | USER_DEFINED | UNKNOWN)
}

fn added_token(text: &str, kind: i32) -> Json {
    json!({
        "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": kind != USER_DEFINED,
    })
}

fn kind(metadata: &Metadata) -> Outcome<Kind> {
    let unknown = |key: &str, what: String| {
        Err(Problem::new(Code::NotSupported, what)
            .field(key)
            .remedy("take the model as safetensors, with its tokenizer.json"))
    };
    let word = |key: &str| metadata.get(key).map(|v| v.text().unwrap_or("?").escape_debug().to_string());
    match word(MODEL).as_deref() {
        Some("gpt2") => match word(PRE) {
            Some(name) => match Pre::of(&name) {
                Some(pre) => Ok(Kind::Bytes(pre)),
                None => unknown(PRE, format!("texts are cut before tokenizing in a way that is not known: \"{name}\"")),
            },
            None => unknown(PRE, format!("the file does not say how texts are cut before tokenizing ({PRE})")),
        },
        Some("llama")
            if metadata.get("tokenizer.ggml.remove_extra_whitespaces").and_then(Value::flag) == Some(true) =>
        {
            unknown(
                "tokenizer.ggml.remove_extra_whitespaces",
                "a tokenizer that takes spaces out of texts is not rebuilt".into(),
            )
        }
        Some("llama") => Ok(Kind::Scores),
        Some(other) => unknown(MODEL, format!("a tokenizer of the kind \"{other}\" is not rebuilt")),
        None => unknown(MODEL, format!("the file does not say what kind of tokenizer it has ({MODEL})")),
    }
}

fn types(metadata: &Metadata, count: usize) -> Outcome<Vec<i32>> {
    let Some(value) = metadata.get(TYPES) else { return Ok(vec![NORMAL; count]) };
    let types = value.integers().ok_or_else(|| bad(TYPES, "the kinds of tokens are no whole numbers"))?;
    if types.len() != count {
        return Err(bad(TYPES, format!("{} kinds of tokens for {count} tokens", types.len())));
    }
    let known = |kind: &i64| (i64::from(NORMAL)..=i64::from(BYTE)).contains(kind);
    match types.iter().position(|kind| !known(kind)) {
        Some(id) => Err(bad(TYPES, format!("token {id} is of the unknown kind {}", types[id]))),
        None => Ok(types.into_iter().map(|kind| kind as i32).collect()),
    }
}

#[cfg(test)]
mod tests;
