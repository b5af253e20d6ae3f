//! `config.json` of a Llama model: strict, with every refusal named. Both the old keys (`torch_dtype`, `rope_theta`) and
//! those of transformers 5 (`dtype`, `rope_parameters`) are read.

use crate::folder::Folder;
use protocol::facts::ModelConfig;
use protocol::{Code, Outcome, Problem, limits};
use serde_json::{Map, Value};
use std::path::Path;

/// Ids of special tokens that `config.json` names besides the end token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// bos_token_id.
    pub bos: Option<u32>,
    /// pad_token_id.
    pub pad: Option<u32>,
}

const FILE: &str = "config.json";
const GENERATION: &str = "generation_config.json";

/// Largest values of a shape: a few times those of the largest published models, so that no product overflows.
const LAYERS: u64 = 1024;
const WIDTH: u64 = 1 << 17;
const INNER: u64 = 1 << 20;
const HEADS: u64 = 2048;
const HEAD_DIM: u64 = 1024;
const VOCAB: u64 = 1 << 22;
const CONTEXT: u64 = 1 << 24;
/// End tokens a model may name.
const ENDS: usize = 64;

/// Reads and checks `config.json`; end tokens are those of `generation_config.json` too.
pub(super) fn read(folder: &Folder) -> Outcome<(ModelConfig, SpecialIds)> {
    let path = folder.path().join(FILE);
    if !folder.has(FILE) {
        let what = "the folder has no config.json, so it is not a model folder";
        return Err(Problem::new(Code::FormatUnknown, what).file(folder.path()));
    }
    let fields = Fields::parse(&folder.read(FILE, limits::CONFIG_BYTES)?, &path)?;
    let (mut config, ids) = read_fields(&fields)?;
    if folder.has(GENERATION) {
        let path = folder.path().join(GENERATION);
        let more = Fields::parse(&folder.read(GENERATION, limits::CONFIG_BYTES)?, &path)?;
        for id in more.ends(config.vocab)? {
            if !config.eos.contains(&id) {
                config.eos.push(id);
            }
        }
    }
    Ok((config, ids))
}

/// The same from fields that stand for a `config.json`; `path` is where they are from.
pub(crate) fn parse(map: Map<String, Value>, path: &Path) -> Outcome<(ModelConfig, SpecialIds)> {
    read_fields(&Fields { map, path })
}

fn read_fields(f: &Fields) -> Outcome<(ModelConfig, SpecialIds)> {
    check_architecture(f)?;
    check_unsupported(f)?;
    let heads = f.size("num_attention_heads", HEADS, None)?;
    let hidden = f.size("hidden_size", WIDTH, None)?;
    let vocab = f.size("vocab_size", VOCAB, None)?;
    let config = ModelConfig {
        architecture: "LlamaForCausalLM".into(),
        layers: f.size("num_hidden_layers", LAYERS, None)?,
        hidden,
        intermediate: f.size("intermediate_size", INNER, None)?,
        heads,
        kv_heads: f.size("num_key_value_heads", HEADS, Some(heads))?,
        head_dim: head_dim(f, hidden, heads)?,
        vocab,
        context: f.size("max_position_embeddings", CONTEXT, Some(2048))?,
        tied: f.flag("tie_word_embeddings")?.unwrap_or(false),
        rms_norm_eps: f.positive("rms_norm_eps", 1e-6)?,
        rope_theta: rope_theta(f)?,
        rope_scaling: None,
        attention_bias: false,
        mlp_bias: false,
        initializer_range: f.positive("initializer_range", 0.02)?,
        eos: f.ends(vocab)?,
    };
    check_shape(f, &config)?;
    let ids = SpecialIds { bos: f.id("bos_token_id", vocab)?, pad: f.id("pad_token_id", vocab)? };
    Ok((config, ids))
}

fn check_architecture(f: &Fields) -> Outcome<()> {
    let named = f.get("architectures").and_then(Value::as_array).and_then(|a| a.first()).and_then(Value::as_str);
    let family = f.get("model_type").and_then(Value::as_str);
    let unknown = |what: String| {
        Err(f
            .problem(Code::ArchitectureUnknown, "architectures", what)
            .remedy("this version trains LlamaForCausalLM; other architectures come with later versions"))
    };
    match (named, family) {
        (None, None) => Err(f.invalid("architectures", "neither architectures nor model_type says what model this is")),
        (Some(a), _) if a != "LlamaForCausalLM" => {
            let code =
                if f.get("auto_map").is_some() { " and needs custom code of its own, which is never run" } else { "" };
            unknown(format!("the model's architecture is {}{code}", a.escape_debug()))
        }
        (_, Some(m)) if m != "llama" => unknown(format!("the model's architecture is of type {}", m.escape_debug())),
        _ if f.get("auto_map").is_some() => {
            unknown("the model brings custom code of its own (auto_map), which is never run".into())
        }
        _ => Ok(()),
    }
}

/// What a Llama configuration may switch on and this version does not compute; nothing is ever ignored silently.
fn check_unsupported(f: &Fields) -> Outcome<()> {
    let later = |field: &str, what: &str| {
        Err(f.problem(Code::NotSupported, field, format!("{what} comes with a later version")))
    };
    if f.get("quantization_config").is_some() {
        return later("quantization_config", "training of quantised weights");
    }
    for field in ["attention_bias", "mlp_bias"] {
        if f.flag(field)?.unwrap_or(false) {
            return later(field, "a model with biases");
        }
    }
    if f.get("sliding_window").is_some() && f.flag("use_sliding_window")? != Some(false) {
        return later("sliding_window", "attention with a sliding window");
    }
    if let Some(other) = other_layer_type(f) {
        return later("layer_types", &format!("a layer of type {}", other.escape_debug()));
    }
    for (field, normal) in [("attention_dropout", 0.0), ("partial_rotary_factor", 1.0)] {
        if f.get(field).is_some() && f.number(field)? != Some(normal) {
            return later(field, &format!("{field} other than {normal}"));
        }
    }
    match f.get("hidden_act").map(|v| v.as_str().unwrap_or("?")) {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => later("hidden_act", &format!("the activation {}", other.escape_debug())),
    }
}

fn other_layer_type<'a>(f: &'a Fields) -> Option<&'a str> {
    let types = f.get("layer_types")?.as_array()?;
    types.iter().map(|t| t.as_str().unwrap_or("?")).find(|t| *t != "full_attention")
}

/// Theta of the rotary embedding; any scaling of it is refused by name.
fn rope_theta(f: &Fields) -> Outcome<f64> {
    for field in ["rope_scaling", "rope_parameters"] {
        let Some(block) = f.get(field) else { continue };
        let Some(block) = block.as_object() else {
            return Err(f.invalid(field, "must be an object or null"));
        };
        let kind = ["rope_type", "type"].iter().find_map(|k| block.get(*k)).and_then(Value::as_str);
        match kind {
            Some("default") => {}
            None if field == "rope_parameters" && !block.contains_key("factor") => {}
            other => {
                let kind = other.unwrap_or("unknown").escape_debug();
                let what = format!("rotary embeddings scaled by \"{kind}\" come with a later version");
                return Err(f.problem(Code::NotSupported, field, what));
            }
        }
    }
    let inner = f.get("rope_parameters").and_then(|b| b.get("rope_theta")).filter(|v| !v.is_null());
    match inner {
        Some(v) => v
            .as_f64()
            .filter(|t| t.is_finite() && *t > 0.0)
            .ok_or_else(|| f.invalid("rope_parameters.rope_theta", "must be a number above 0")),
        None => f.positive("rope_theta", 10_000.0),
    }
}

fn head_dim(f: &Fields, hidden: u32, heads: u32) -> Outcome<u32> {
    if f.get("head_dim").is_some() {
        return f.size("head_dim", HEAD_DIM, None);
    }
    match hidden.checked_rem(heads) {
        Some(0) if u64::from(hidden / heads) <= HEAD_DIM => Ok(hidden / heads),
        _ => Err(f.invalid("head_dim", format!("a width of {hidden} cannot be split over {heads} heads"))),
    }
}

fn check_shape(f: &Fields, c: &ModelConfig) -> Outcome<()> {
    if !c.heads.is_multiple_of(c.kv_heads) {
        let what = format!("{} heads cannot share {} key/value heads evenly", c.heads, c.kv_heads);
        return Err(f.invalid("num_key_value_heads", what));
    }
    if !c.head_dim.is_multiple_of(2) {
        return Err(f.invalid("head_dim", format!("{} is odd; rotary embeddings need pairs", c.head_dim)));
    }
    Ok(())
}

/// The keys of a JSON object, with its path for messages. Null is the same as absent, as in transformers.
struct Fields<'a> {
    map: Map<String, Value>,
    path: &'a Path,
}

impl<'a> Fields<'a> {
    fn parse(bytes: &[u8], path: &'a Path) -> Outcome<Fields<'a>> {
        let bad = |why: String, line| {
            Problem::new(Code::ConfigInvalid, "the configuration is not a JSON object").why(why).file(path).line(line)
        };
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(map)) => Ok(Fields { map, path }),
            Ok(_) => Err(bad("it holds another kind of value".into(), 1)),
            Err(e) => Err(bad(e.to_string(), e.line() as u64)),
        }
    }

    fn get(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|v| !v.is_null())
    }

    fn problem(&self, code: Code, field: &str, what: impl Into<String>) -> Problem {
        Problem::new(code, what).file(self.path).field(field)
    }

    fn invalid(&self, field: &str, what: impl Into<String>) -> Problem {
        self.problem(Code::ConfigInvalid, field, format!("{field}: {}", what.into()))
            .remedy("take the config.json that belongs to these weights")
    }

    fn size(&self, field: &str, most: u64, default: Option<u32>) -> Outcome<u32> {
        let Some(value) = self.get(field) else {
            return default.ok_or_else(|| self.invalid(field, "is missing"));
        };
        match value.as_u64() {
            Some(n) if (1..=most).contains(&n) => Ok(n as u32),
            _ => Err(self.invalid(field, format!("{} is not a whole number from 1 to {most}", brief(value)))),
        }
    }

    fn flag(&self, field: &str) -> Outcome<Option<bool>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(*b)),
            Some(other) => Err(self.invalid(field, format!("{} is neither true nor false", brief(other)))),
        }
    }

    fn number(&self, field: &str) -> Outcome<Option<f64>> {
        match self.get(field) {
            None => Ok(None),
            Some(v) => match v.as_f64() {
                Some(x) => Ok(Some(x)),
                None => Err(self.invalid(field, format!("{} is not a number", brief(v)))),
            },
        }
    }

    fn positive(&self, field: &str, default: f64) -> Outcome<f64> {
        let x = self.number(field)?.unwrap_or(default);
        let good = x.is_finite() && x > 0.0;
        good.then_some(x).ok_or_else(|| self.invalid(field, format!("{x} is not above 0")))
    }

    fn id(&self, field: &str, vocab: u32) -> Outcome<Option<u32>> {
        self.get(field).and_then(|v| valid_id(v, vocab)).map_or(Ok(None), |id| Ok(Some(id)))
    }

    /// One end token or several; ids beyond the vocabulary are an error, since generation would never end.
    fn ends(&self, vocab: u32) -> Outcome<Vec<u32>> {
        let ids = match self.get("eos_token_id") {
            None => return Ok(Vec::new()),
            Some(Value::Array(ids)) => ids.clone(),
            Some(one) => vec![one.clone()],
        };
        if ids.len() > ENDS {
            return Err(
                self.invalid("eos_token_id", format!("names {} end tokens; at most {ENDS} are read", ids.len()))
            );
        }
        let bad = |v: &Value| self.invalid("eos_token_id", format!("{} is no id below vocab_size {vocab}", brief(v)));
        ids.iter().map(|v| valid_id(v, vocab).ok_or_else(|| bad(v))).collect()
    }
}

fn valid_id(value: &Value, vocab: u32) -> Option<u32> {
    value.as_u64().filter(|id| *id < u64::from(vocab)).map(|id| id as u32)
}

/// A value for a message: short, control characters escaped.
fn brief(value: &Value) -> String {
    let text: String = value.to_string().chars().take(40).collect();
    text.escape_debug().to_string()
}
