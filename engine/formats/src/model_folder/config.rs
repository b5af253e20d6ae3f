//! `config.json` of a Llama model: strict, with every refusal named. Both the old keys (`torch_dtype`, `rope_theta`) and
//! those of transformers 5 (`dtype`, `rope_parameters`) are read. The type of the numbers is taken from the tensors
//! themselves, so that `dtype` may be null or missing.
//!
//! Not here: the keys of a JSON object (`fields`), rotary embeddings (`rope`), weights (`shards`).

use super::fields::Fields;
use super::rope;
use crate::folder::Folder;
use protocol::facts::ModelConfig;
use protocol::{Code, Outcome, Problem, limits};
use serde_json::Value;

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
pub(super) const CONTEXT: u64 = 1 << 24;

/// Reads and checks `config.json`; end tokens are those of `generation_config.json` too.
pub(super) fn read(folder: &Folder) -> Outcome<(ModelConfig, SpecialIds)> {
    let path = folder.path().join(FILE);
    if !folder.has(FILE) {
        let what = "the folder has no config.json, so it is not a model folder";
        let problem = Problem::new(Code::FormatUnknown, what).file(folder.path());
        let cached = folder.has("snapshots") && folder.has("blobs");
        return Err(if cached {
            problem.remedy("give the folder below its snapshots: that is the model")
        } else {
            problem
        });
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
pub(crate) fn parse(map: serde_json::Map<String, Value>, path: &std::path::Path) -> Outcome<(ModelConfig, SpecialIds)> {
    read_fields(&Fields::of(map, path))
}

fn read_fields(f: &Fields) -> Outcome<(ModelConfig, SpecialIds)> {
    check_architecture(f)?;
    check_unsupported(f)?;
    let heads = f.size("num_attention_heads", HEADS, None)?;
    let hidden = f.size("hidden_size", WIDTH, None)?;
    let vocab = f.size("vocab_size", VOCAB, None)?;
    let context = f.size("max_position_embeddings", CONTEXT, Some(2048))?;
    let rope = rope::read(f, context)?;
    let config = ModelConfig {
        architecture: "LlamaForCausalLM".into(),
        layers: f.size("num_hidden_layers", LAYERS, None)?,
        hidden,
        intermediate: f.size("intermediate_size", INNER, None)?,
        heads,
        kv_heads: f.size("num_key_value_heads", HEADS, Some(heads))?,
        head_dim: head_dim(f, hidden, heads)?,
        vocab,
        context,
        tied: f.flag("tie_word_embeddings")?.unwrap_or(false),
        rms_norm_eps: f.positive("rms_norm_eps", 1e-6)?,
        rope_theta: rope.theta,
        rope_scaling: rope.scaling,
        attention_bias: f.flag("attention_bias")?.unwrap_or(false),
        mlp_bias: f.flag("mlp_bias")?.unwrap_or(false),
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
