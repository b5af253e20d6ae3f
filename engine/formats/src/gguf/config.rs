//! Metadata as the `config.json` that says the same; the one strict reader of configurations then checks it.
//!
//! Not here: bounds and contradictions (`model_folder::config`).

use super::rope::Llama3;
use super::{File, Metadata, Value, names};
use protocol::{Code, Outcome, Problem};
use serde_json::{Map, Value as Json, json};

/// Keys after the architecture's name, and the configuration's names for them.
const NUMBERS: [(&str, &str); 10] = [
    ("block_count", "num_hidden_layers"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("context_length", "max_position_embeddings"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("rope.freq_base", "rope_theta"),
    ("vocab_size", "vocab_size"),
];
/// Ids of special tokens.
const IDS: [(&str, &str); 3] = [
    ("tokenizer.ggml.bos_token_id", "bos_token_id"),
    ("tokenizer.ggml.eos_token_id", "eos_token_id"),
    ("tokenizer.ggml.padding_token_id", "pad_token_id"),
];
/// Other tokens that end a text, which end tokens join.
const ENDS: [&str; 2] = ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// The configuration that a file's metadata and tensors mean. Errors: `ArchitectureUnknown`, `NotSupported`,
/// `ConfigInvalid` naming the key.
pub(super) fn json(file: &File) -> Outcome<Map<String, Json>> {
    let metadata = file.metadata();
    check_architecture(metadata)?;
    let mut config = Map::new();
    for (key, name) in NUMBERS {
        let key = format!("llama.{key}");
        if let Some(value) = metadata.get(&key) {
            config.insert(name.into(), number(value).ok_or_else(|| not_a_number(&key))?);
        }
    }
    for (key, name) in IDS {
        if let Some(value) = metadata.get(key) {
            config.insert(name.into(), number(value).ok_or_else(|| not_a_number(key))?);
        }
    }
    add_ends(metadata, &mut config);
    if let (None, Some(embedding)) = (config.get("vocab_size"), file.tensor("token_embd.weight")) {
        config.insert("vocab_size".into(), json!(embedding.shape.first()));
    }
    let has = |name: &str| file.tensors().iter().any(|t| t.name.starts_with("blk.") && t.name.ends_with(name));
    config.insert("architectures".into(), json!(["LlamaForCausalLM"]));
    config.insert("model_type".into(), json!("llama"));
    config.insert("hidden_act".into(), json!("silu"));
    config.insert("tie_word_embeddings".into(), json!(file.tensor("output.weight").is_none()));
    config.insert("attention_bias".into(), json!(has(".attn_q.bias")));
    config.insert("mlp_bias".into(), json!(has(".ffn_gate.bias")));
    check_heads(metadata, &config)?;
    let scaling = rope_scaling(file, &config)?;
    config.insert("rope_scaling".into(), scaling);
    Ok(config)
}

/// The GGUF key of a configuration's field, for messages.
pub(super) fn key_of(field: &str) -> Option<String> {
    let ids = IDS.iter().find(|(_, name)| *name == field).map(|(key, _)| (*key).to_owned());
    ids.or_else(|| NUMBERS.iter().find(|(_, name)| *name == field).map(|(key, _)| format!("llama.{key}")))
}

fn check_architecture(metadata: &Metadata) -> Outcome<()> {
    const KEY: &str = "general.architecture";
    let unknown = |what: String, field: &str| {
        Err(Problem::new(Code::ArchitectureUnknown, what)
            .field(field)
            .remedy("this version reads GGUF files of the Llama family (general.architecture = llama)"))
    };
    match metadata.get(KEY).map(|v| v.text()) {
        Some(Some("llama")) => {}
        Some(Some(other)) => return unknown(format!("the model's architecture is {}", other.escape_debug()), KEY),
        Some(None) | None => return unknown(format!("the file does not say its architecture ({KEY})"), KEY),
    }
    let experts = metadata.get("llama.expert_count").and_then(Value::whole).unwrap_or(0);
    if experts > 0 {
        return unknown(format!("the model is a mixture of {experts} experts"), "llama.expert_count");
    }
    match metadata.get("llama.attention.sliding_window").and_then(Value::whole) {
        None | Some(0) => Ok(()),
        Some(_) => Err(Problem::new(Code::NotSupported, "attention with a sliding window comes with a later version")
            .field("llama.attention.sliding_window")),
    }
}

fn number(value: &Value) -> Option<Json> {
    value.whole().map(|n| json!(n)).or_else(|| value.number().filter(|x| x.is_finite()).map(|x| json!(x)))
}

fn not_a_number(key: &str) -> Problem {
    Problem::new(Code::ConfigInvalid, format!("{key} is not one number for the whole model")).field(key)
}

/// A chat model ends its turn with a token of its own, which files name beside the end of text.
fn add_ends(metadata: &Metadata, config: &mut Map<String, Json>) {
    let mut ends: Vec<u64> = config.get("eos_token_id").and_then(Json::as_u64).into_iter().collect();
    for key in ENDS {
        let more = metadata.get(key).and_then(Value::whole).filter(|id| !ends.contains(id));
        ends.extend(more);
    }
    if ends.len() > 1 {
        config.insert("eos_token_id".into(), json!(ends));
    }
}

/// Heads are as wide for values as for keys, and turn whole.
fn check_heads(metadata: &Metadata, config: &Map<String, Json>) -> Outcome<()> {
    let whole = |name: &str| config.get(name).and_then(Json::as_u64);
    let width = whole("head_dim").or_else(|| whole("hidden_size")?.checked_div(whole("num_attention_heads")?));
    for key in ["llama.attention.value_length", "llama.rope.dimension_count"] {
        let Some(value) = metadata.get(key) else { continue };
        let found = value.whole().ok_or_else(|| not_a_number(key))?;
        if width.is_some_and(|width| width != found) {
            let what = format!(
                "{key} is {found} in heads of {}; other widths within a head are not computed",
                width.unwrap_or(0)
            );
            return Err(Problem::new(Code::NotSupported, what).field(key));
        }
    }
    Ok(())
}

/// The scaling of rotary embeddings, in `config.json`'s words; null where there is none.
fn rope_scaling(file: &File, config: &Map<String, Json>) -> Outcome<Json> {
    const KIND: &str = "llama.rope.scaling.type";
    let metadata = file.metadata();
    let get = |key: &str| metadata.get(&format!("llama.rope.scaling.{key}"));
    let required = |key: &str| {
        let full = format!("llama.rope.scaling.{key}");
        get(key).and_then(number).ok_or_else(|| not_a_number(&full))
    };
    let kind = match metadata.get(KIND) {
        None => None,
        Some(value) => Some(
            value.text().ok_or_else(|| Problem::new(Code::ConfigInvalid, format!("{KIND} is no text")).field(KIND))?,
        ),
    };
    let divided = file.tensor(names::ROPE_FREQS);
    let scaling = match kind {
        None | Some("none") => match metadata.get("llama.rope.scale_linear").and_then(Value::number) {
            None | Some(0.0 | 1.0) => Json::Null,
            Some(factor) => json!({"rope_type": "linear", "factor": factor}),
        },
        Some("linear") => json!({"rope_type": "linear", "factor": required("factor")?}),
        Some("yarn") => yarn(metadata, required("factor")?, get("original_context_length").and_then(number))?,
        Some(other) => {
            let what = format!("rotary embeddings scaled by \"{}\" are not computed", other.escape_debug());
            return Err(Problem::new(Code::NotSupported, what).field(KIND));
        }
    };
    match divided {
        None => Ok(scaling),
        Some(tensor) if scaling.is_null() => llama3(file, tensor, config),
        Some(_) => Err(Problem::new(Code::NotSupported, "the rotary embeddings are scaled in two ways at once")
            .field(KIND)
            .tensor(names::ROPE_FREQS)),
    }
}

/// YaRN with the parameters that its authors chose; files that change them are refused.
fn yarn(metadata: &Metadata, factor: Json, original: Option<Json>) -> Outcome<Json> {
    let changed = metadata.keys().find(|key| {
        let rest = key.strip_prefix("llama.rope.scaling.");
        rest.is_some_and(|rest| !matches!(rest, "type" | "factor" | "original_context_length" | "finetuned"))
    });
    if let Some(key) = changed {
        let what = format!("rotary embeddings scaled by YaRN with {} are not computed", key.escape_debug());
        return Err(Problem::new(Code::NotSupported, what).field(key.as_str()));
    }
    let mut scaling = json!({"rope_type": "yarn", "factor": factor});
    if let Some(original) = original {
        scaling["original_max_position_embeddings"] = original;
    }
    Ok(scaling)
}

fn llama3(file: &File, tensor: &super::TensorInfo, config: &Map<String, Json>) -> Outcome<Json> {
    let whole = |name: &str| config.get(name).and_then(Json::as_u64);
    let width = whole("head_dim").or_else(|| whole("hidden_size")?.checked_div(whole("num_attention_heads")?));
    let width = width.and_then(|w| u32::try_from(w).ok()).unwrap_or(0);
    let theta = config.get("rope_theta").and_then(Json::as_f64).unwrap_or(10_000.0);
    if tensor.elements() != u64::from(width / 2) {
        let what = format!("{} has shape {:?}, a head has {} frequencies", tensor.name, tensor.shape, width / 2);
        return Err(Problem::new(Code::TensorMismatch, what).tensor(&tensor.name));
    }
    let mut divisors = vec![0.0; (width / 2) as usize];
    file.read_f32(tensor, &mut divisors)?;
    if divisors.iter().all(|d| *d == 1.0) {
        return Ok(Json::Null);
    }
    let found = Llama3::recover(&divisors, theta, width)?;
    Ok(json!({
        "rope_type": "llama3",
        "factor": found.factor,
        "low_freq_factor": found.low,
        "high_freq_factor": found.high,
        "original_max_position_embeddings": found.original_context,
    }))
}
