//! The way back: the metadata that says what a tokenizer and its template say.
//!
//! What a GGUF file cannot say is refused by name; what is not noticed here is by `same`, which holds the rebuilt tokenizer
//! against the first one.

use super::pre::Pre;
use super::{
    ADD_BOS, ADD_EOS, BYTE, CONTROL, MERGES, MODEL, NORMAL, PRE, ROLES, SCORES, SPACE_PREFIX, TEMPLATE, TOKENS, TYPES,
    UNKNOWN, UNUSED, USER_DEFINED, pieces,
};
use crate::files::Files;
use crate::gguf::{Array, Strings, Value};
use crate::model_folder::SpecialIds;
use crate::template::Template;
use crate::tokenizer::{Control, Tokenizer};
use protocol::facts::ModelConfig;
use protocol::{Code, Outcome, Problem, limits};
use serde_json::Value as Json;
use std::path::Path;

/// What a model's metadata begins with, in the order of writing.
pub(crate) type Pairs = Vec<(String, Value)>;

/// Metadata of the tokenizer and template at `path`, a folder or GGUF file. Errors: `TokenizerInvalid`, `NotSupported`
/// naming what GGUF cannot say.
pub(crate) fn describe(path: &Path, config: &ModelConfig, ids: SpecialIds) -> Outcome<Pairs> {
    let files = Files::open(path)?;
    let tokenizer = Tokenizer::open(path)?;
    let bytes = files.read("tokenizer.json", limits::TOKENIZER_BYTES)?;
    let json: Json = serde_json::from_slice(&bytes)
        .map_err(|e| Problem::new(Code::TokenizerInvalid, "tokenizer.json is not JSON").why(e.to_string()))?;
    let named = |p: Problem| p.file(&files.place("tokenizer.json"));
    let mut pairs = vocabulary(&json, config).map_err(named)?;
    let unknown = json["model"]["unk_token"].as_str().and_then(|text| tokenizer.token_id(text));
    let eos = tokenizer.eos().or(config.eos.first().copied());
    let roles = [tokenizer.bos().or(ids.bos), eos, unknown, tokenizer.pad().or(ids.pad)];
    for ((key, _, _), id) in ROLES.iter().zip(roles) {
        pairs.extend(id.map(|id| ((*key).to_owned(), Value::U32(id))));
    }
    let others = config.eos.iter().filter(|id| Some(**id) != eos);
    for (key, id) in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"].iter().zip(others) {
        pairs.push(((*key).to_owned(), Value::U32(*id)));
    }
    let [begins, ends] = added(&tokenizer)?;
    pairs.push((ADD_BOS.into(), Value::Bool(begins)));
    pairs.push((ADD_EOS.into(), Value::Bool(ends)));
    if let Some(template) = Template::open(path)? {
        pairs.push((TEMPLATE.into(), template.source().into()));
    }
    Ok(pairs)
}

fn cannot(what: impl Into<String>) -> Problem {
    Problem::new(Code::NotSupported, format!("a GGUF file cannot say what this tokenizer does: {}", what.into()))
        .remedy("export as safetensors")
}

/// Tokens, their kinds, and how they come about.
fn vocabulary(json: &Json, config: &ModelConfig) -> Outcome<Pairs> {
    let model = &json["model"];
    let model_kind = model["type"].as_str().unwrap_or(if model.get("merges").is_some() { "BPE" } else { "?" });
    if model_kind != "BPE" {
        return Err(cannot(format!("its model is {}, not byte-pair encoding", model_kind.escape_debug())));
    }
    for field in ["dropout", "continuing_subword_prefix", "end_of_word_suffix"] {
        let value = &model[field];
        if !value.is_null() && value != "" {
            return Err(cannot(format!("model.{field} is {value}")).field(field));
        }
    }
    let (tokens, types) = tokens(json, config)?;
    let merges = merges(model)?;
    let mut pairs = Pairs::new();
    let mut put = |key: &str, value: Value| pairs.push((key.to_owned(), value));
    if let Some(pre) = Pre::ALL.into_iter().find(|pre| is_cut_as(json, *pre)) {
        put(MODEL, "gpt2".into());
        put(PRE, pre.name().into());
        put(TOKENS, Value::Array(Array::Strings(tokens)));
        put(TYPES, Value::Array(Array::I32(types)));
        let merges = merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
        put(MERGES, Value::Array(Array::Strings(merges)));
    } else if let Some(prefix) = [true, false].into_iter().find(|prefix| is_shaped(json, &pieces::shape(*prefix))) {
        put(MODEL, "llama".into());
        put(PRE, "default".into());
        let scores = pieces::scores(&tokens, &merges);
        put(TOKENS, Value::Array(Array::Strings(tokens)));
        put(SCORES, Value::Array(Array::F32(scores)));
        put(TYPES, Value::Array(Array::I32(types)));
        put(SPACE_PREFIX, Value::Bool(prefix));
    } else {
        return Err(cannot("the way in which it cuts texts has no name there").field("pre_tokenizer"));
    }
    Ok(pairs)
}

fn is_cut_as(json: &Json, pre: Pre) -> bool {
    let shape = pre.shape();
    json["model"]["byte_fallback"] != true
        && ["normalizer", "pre_tokenizer"].iter().all(|part| alike(&json[*part], &shape[*part]))
}

fn is_shaped(json: &Json, shape: &Json) -> bool {
    json["model"]["byte_fallback"] == true
        && ["normalizer", "pre_tokenizer"].iter().all(|part| alike(&json[*part], &shape[*part]))
}

/// Equal but for where offsets begin, and for a sequence of one.
fn alike(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Object(a), Json::Object(b)) => {
            let counts = |map: &serde_json::Map<String, Json>| map.keys().filter(|k| *k != "trim_offsets").count();
            let same = |(k, v): (&String, &Json)| k == "trim_offsets" || b.get(k).is_some_and(|other| alike(v, other));
            counts(a) == counts(b) && a.iter().all(same)
        }
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        _ => a == b,
    }
}

/// Text and kind of an id.
type Slot<'a> = Option<(&'a str, i32)>;

/// Texts and kinds by id; ids without a token are filled up to the model's vocabulary.
fn tokens(json: &Json, config: &ModelConfig) -> Outcome<(Strings, Vec<i32>)> {
    let count = config.vocab as usize;
    let mut texts: Vec<Slot> = vec![None; count];
    let by_bytes = json["model"]["byte_fallback"] == true;
    let unknown = json["model"]["unk_token"].as_str();
    for (text, id) in json["model"]["vocab"].as_object().into_iter().flatten() {
        let kind = match text.as_str() {
            text if by_bytes && is_byte(text) => BYTE,
            text if by_bytes && Some(text) == unknown => UNKNOWN,
            _ => NORMAL,
        };
        put(&mut texts, id.as_u64(), text, kind)?;
    }
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let text = token["content"].as_str().unwrap_or_default();
        let kind = match token["special"] == true {
            true if by_bytes && Some(text) == unknown => UNKNOWN,
            true => CONTROL,
            false => USER_DEFINED,
        };
        put(&mut texts, token["id"].as_u64(), text, kind)?;
    }
    let types = texts.iter().map(|slot| slot.map_or(UNUSED, |(_, kind)| kind)).collect();
    let text = |(id, slot): (usize, &Slot)| slot.map_or(format!("[PAD{id}]"), |(t, _)| t.to_owned());
    Ok((texts.iter().enumerate().map(text).collect(), types))
}

fn put<'a>(texts: &mut [Slot<'a>], id: Option<u64>, text: &'a str, kind: i32) -> Outcome<()> {
    let count = texts.len();
    let slot = id.and_then(|id| texts.get_mut(usize::try_from(id).ok()?));
    let slot = slot.ok_or_else(|| {
        let what = format!("the token {} has no id below the model's vocabulary of {count}", text.escape_debug());
        Problem::new(Code::TokenizerInvalid, what)
    })?;
    *slot = Some((text, kind));
    Ok(())
}

fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|d| d.len() == 2 && u8::from_str_radix(d, 16).is_ok())
}

fn merges(model: &Json) -> Outcome<Vec<(String, String)>> {
    let pair = |merge: &Json| {
        let of = |(a, b): (&str, &str)| (a.to_owned(), b.to_owned());
        let listed = || Some((merge.get(0)?.as_str()?, merge.get(1)?.as_str()?));
        let found = merge.as_str().and_then(|text| text.split_once(' ')).or_else(listed).map(of);
        found.ok_or_else(|| Problem::new(Code::TokenizerInvalid, "a merge of tokenizer.json is no pair"))
    };
    model["merges"].as_array().into_iter().flatten().map(pair).collect()
}

/// Whether the tokenizer puts its first and last token around a text by itself; anything else is refused.
fn added(tokenizer: &Tokenizer) -> Outcome<[bool; 2]> {
    let bare = tokenizer.encode_with("a", Control::Plain, false)?.ids;
    let whole = tokenizer.encode_with("a", Control::Plain, true)?.ids;
    for (begins, ends) in [(false, false), (true, false), (false, true), (true, true)] {
        let begin = tokenizer.bos().filter(|_| begins);
        let end = tokenizer.eos().filter(|_| ends);
        if begins == begin.is_some() && ends == end.is_some() {
            let made: Vec<u32> = begin.into_iter().chain(bare.iter().copied()).chain(end).collect();
            if made == whole {
                return Ok([begins, ends]);
            }
        }
    }
    Err(cannot("it puts other tokens around a text than its first and its last one").field("post_processor"))
}

/// Texts that two tokenizers must agree on, besides every token's own.
const PROBES: [&str; 8] = [
    "The quick brown fox jumps over 1234567 lazy dogs, isn't it?  Yes.",
    "  two spaces\n\nand\tTABS \r\n end ",
    "Größe, naïve café — «déjà vu»…",
    "你好，世界！これは試験です。한국어도",
    "👩‍👩‍👧 🤷🏽 e\u{301}",
    "fn main() { println!(\"{}\", x_1 + 0x2F); }",
    "I'M THEY'LL we've don't ''s",
    "<|im_start|>user\n[INST] <s> </s>",
];

/// Checks that the tokenizer of a written file gives the ids of the one that it was made from, for every token's own text
/// and some more. Errors: `NotSupported` with the first text that differs.
pub(crate) fn same(first: &Tokenizer, rebuilt: &Tokenizer) -> Outcome<()> {
    let tokens = (0..first.vocab()).map(|id| first.token_text(id));
    for text in PROBES.into_iter().map(str::to_owned).chain(tokens) {
        if first.encode(&text, true)? != rebuilt.encode(&text, true)? {
            let text: String = text.chars().take(80).collect();
            return Err(cannot(format!("the text \"{}\" would become other tokens", text.escape_debug())));
        }
    }
    Ok(())
}
