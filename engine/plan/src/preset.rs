//! Built-in shapes for training from scratch.

use protocol::facts::ModelConfig;
use protocol::{Code, Outcome, Problem};

/// The shape of a preset over a vocabulary of `vocab` entries. "nano": 0.8 million parameters with 512 entries, so that
/// a CPU trains it in minutes.
///
/// Errors: `NotSupported` for a name that is not known, `SettingInvalid` for an empty vocabulary.
pub fn preset(name: &str, vocab: u32) -> Outcome<ModelConfig> {
    if vocab == 0 {
        return Err(Problem::new(Code::SettingInvalid, "a model needs a vocabulary of at least one entry"));
    }
    match name {
        "nano" => Ok(nano(vocab)),
        _ => Err(Problem::new(Code::NotSupported, format!("there is no preset named \"{name}\""))
            .field("model.preset")
            .remedy("use preset = \"nano\", or give a model folder as model.path")),
    }
}

/// Llama in small: 4 layers of width 128; 344 is 8/3 of the width, rounded up to a multiple of 8 (Touvron et al. 2023).
fn nano(vocab: u32) -> ModelConfig {
    ModelConfig {
        architecture: "LlamaForCausalLM".to_owned(),
        layers: 4,
        hidden: 128,
        intermediate: 344,
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        vocab,
        context: 128,
        tied: true,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: None,
        attention_bias: false,
        mlp_bias: false,
        initializer_range: 0.02,
        eos: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nano_has_eight_hundred_thousand_parameters() {
        let parameters = preset("nano", 512).unwrap().parameters();
        assert!((750_000..850_000).contains(&parameters), "{parameters}");
    }

    #[test]
    fn an_unknown_preset_is_refused_by_name() {
        let problem = preset("giant", 512).unwrap_err();
        assert_eq!(problem.code, Code::NotSupported);
        assert!(problem.what.contains("giant"), "{problem:?}");
    }
}
