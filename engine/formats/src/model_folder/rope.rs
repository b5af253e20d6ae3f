//! Rotary embeddings as configurations spell them: `rope_theta` with `rope_scaling` (its kind under "type" or
//! "rope_type"), or the block `rope_parameters` of transformers 5, which holds both. Whatever would turn otherwise than we
//! compute is refused by name.
//!
//! What a file leaves out is filled in as transformers does (`modeling_rope_utils`, 4.57 and 5), so that a
//! [`RopeScaling`] is final. Not here: the frequencies themselves (`trainer::model::rotary`).

use super::config::CONTEXT;
use super::fields::{Fields, brief};
use protocol::facts::RopeScaling;
use protocol::{Code, Outcome};
use serde_json::{Value, json};

const ORIGINAL: &str = "original_max_position_embeddings";
/// Theta where nothing says otherwise.
const THETA: f64 = 10_000.0;

/// What a configuration says about rotary embeddings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rope {
    pub theta: f64,
    pub scaling: Option<RopeScaling>,
}

/// Reads either spelling; `context` is max_position_embeddings. Errors: `NotSupported` naming the kind, `ConfigInvalid`.
pub(super) fn read(f: &Fields, context: u32) -> Outcome<Rope> {
    let blocks = [f.block("rope_scaling")?, f.block("rope_parameters")?];
    match blocks {
        [None, None] => Ok(Rope { theta: f.positive("rope_theta", THETA)?, scaling: None }),
        [Some(block), None] | [None, Some(block)] => read_block(f, &block, context),
        [Some(old), Some(new)] => {
            let (old, new) = (read_block(f, &old, context)?, read_block(f, &new, context)?);
            if old != new {
                return Err(
                    f.invalid("rope_parameters", "says something else than rope_scaling; one of the two must go")
                );
            }
            Ok(new)
        }
    }
}

fn read_block(f: &Fields, block: &Fields, context: u32) -> Outcome<Rope> {
    let theta = theta(f, block)?;
    if block.number("partial_rotary_factor")?.is_some_and(|part| part != 1.0) {
        let what = "partial_rotary_factor other than 1 comes with a later version";
        return Err(block.problem(Code::NotSupported, "partial_rotary_factor", what));
    }
    let scaling = match kind(f, block)?.as_str() {
        "default" => None,
        "linear" => Some(RopeScaling::Linear { factor: block.positive("factor", None)? }),
        "llama3" => Some(llama3(f, block, context)?),
        "yarn" => Some(yarn(f, block, context, theta)?),
        other => {
            let what = format!("rotary embeddings scaled by \"{}\" come with a later version", other.escape_debug());
            return Err(f
                .problem(Code::NotSupported, &block.within(), what)
                .remedy("this version computes the kinds default, linear, llama3 and yarn"));
        }
    };
    Ok(Rope { theta, scaling })
}

/// The kind under either key, or both where they agree. A block without a kind is plain where it holds nothing but theta.
fn kind(f: &Fields, block: &Fields) -> Outcome<String> {
    let named = |key: &str| match block.get(key) {
        None => Ok(None),
        Some(Value::String(kind)) => Ok(Some(kind.clone())),
        Some(other) => Err(block.invalid(key, format!("{} is no name of a kind", brief(other)))),
    };
    match (named("rope_type")?, named("type")?) {
        (Some(new), Some(old)) if new != old => {
            Err(block.invalid("rope_type", format!("\"{}\" contradicts type, \"{}\"", shown(&new), shown(&old))))
        }
        (Some(kind), _) | (None, Some(kind)) => Ok(kind),
        (None, None) => match block.keys().find(|key| *key != "rope_theta" && block.has(key)) {
            None => Ok("default".into()),
            Some(key) => {
                let what =
                    format!("{} is set, and no rope_type says how it scales: unknown", shown(&block.dotted(key)));
                Err(f.problem(
                    Code::NotSupported,
                    &block.within(),
                    format!("{what}; such kinds come with a later version"),
                ))
            }
        },
    }
}

/// Theta of the block, else of the file; both only where they agree.
fn theta(f: &Fields, block: &Fields) -> Outcome<f64> {
    if !block.has("rope_theta") {
        return f.positive("rope_theta", THETA);
    }
    let inner = block.positive("rope_theta", None)?;
    let outer = f.positive("rope_theta", inner)?;
    if inner != outer {
        return Err(block.invalid("rope_theta", format!("{inner} contradicts rope_theta beside it, {outer}")));
    }
    Ok(inner)
}

/// Context before the scaling: of the block, else of the file, else the model's own.
fn original(f: &Fields, block: &Fields, context: u32) -> Outcome<u32> {
    if !block.has(ORIGINAL) {
        return f.size(ORIGINAL, CONTEXT, Some(context));
    }
    let inner = block.size(ORIGINAL, CONTEXT, None)?;
    let outer = f.size(ORIGINAL, CONTEXT, Some(inner))?;
    if inner != outer {
        return Err(block.invalid(ORIGINAL, format!("{inner} contradicts {ORIGINAL} beside it, {outer}")));
    }
    Ok(inner)
}

fn llama3(f: &Fields, block: &Fields, context: u32) -> Outcome<RopeScaling> {
    let [factor, low, high] =
        ["factor", "low_freq_factor", "high_freq_factor"].map(|field| block.positive(field, None));
    let (factor, low, high) = (factor?, low?, high?);
    if high <= low {
        return Err(block.invalid("high_freq_factor", format!("{high} is not above low_freq_factor, {low}")));
    }
    let original_context = original(f, block, context)?;
    Ok(RopeScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_context })
}

fn yarn(f: &Fields, block: &Fields, context: u32, theta: f64) -> Outcome<RopeScaling> {
    let factor = block.positive("factor", None)?;
    // 0 means the default here, as null does.
    let beta = |field: &str, default: f64| match block.number(field)? {
        Some(0.0) => Ok(default),
        _ => block.positive(field, default),
    };
    let (beta_fast, beta_slow) = (beta("beta_fast", 32.0)?, beta("beta_slow", 1.0)?);
    if beta_fast < beta_slow {
        return Err(block.invalid("beta_fast", format!("{beta_fast} is below beta_slow, {beta_slow}")));
    }
    if theta <= 1.0 {
        return Err(block.invalid("rope_theta", format!("{theta} is not above 1, which yarn needs")));
    }
    Ok(RopeScaling::Yarn {
        factor,
        original_context: original(f, block, context)?,
        beta_fast,
        beta_slow,
        attention_factor: attention_factor(block, factor)?,
        // An explicit null switches it off, as in transformers.
        truncate: block.flag("truncate")?.unwrap_or(!block.keys().any(|key| key == "truncate")),
    })
}

/// What the file says, else 0.1 ln(factor) + 1 of the paper, else the ratio of two of these with weights of their own.
fn attention_factor(block: &Fields, factor: f64) -> Outcome<f64> {
    let of = |weight: f64| if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 };
    let weight = |field: &str| block.number(field).map(|w| w.filter(|w| *w != 0.0));
    let default = match (weight("mscale")?, weight("mscale_all_dim")?) {
        (Some(here), Some(all)) => of(here) / of(all),
        _ => of(1.0),
    };
    block.positive("attention_factor", default)
}

/// The value of `rope_scaling` that both generations of transformers read with the same meaning.
pub(super) fn written(scaling: Option<RopeScaling>) -> Value {
    match scaling {
        None => Value::Null,
        Some(RopeScaling::Linear { factor }) => json!({ "rope_type": "linear", "factor": factor }),
        Some(RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context }) => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            ORIGINAL: original_context,
        }),
        Some(RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor, truncate }) => {
            json!({
                "rope_type": "yarn",
                "factor": factor,
                ORIGINAL: original_context,
                "beta_fast": beta_fast,
                "beta_slow": beta_slow,
                "attention_factor": attention_factor,
                "truncate": truncate,
            })
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests;
