//! Shapes: what plans of older versions leave out, and the order of tensors.

use super::*;
use serde_json::json;

/// A shape as versions before biases and scaled positions stored it in their plans.
fn stored() -> serde_json::Value {
    json!({
        "architecture": "LlamaForCausalLM", "layers": 2, "hidden": 8, "intermediate": 12, "heads": 2, "kv_heads": 1,
        "head_dim": 4, "vocab": 10, "context": 16, "tied": true, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "initializer_range": 0.02, "eos": [2],
    })
}

#[test]
fn a_shape_stored_by_an_older_version_has_neither_biases_nor_scaled_positions() {
    let config: ModelConfig = serde_json::from_value(stored()).unwrap();
    assert_eq!((config.rope_scaling, config.attention_bias, config.mlp_bias), (None, false, false));
    assert_eq!(config.tensors().len(), 2 + 2 * 9);
}

#[test]
fn a_bias_stands_right_behind_its_weight_and_counts() {
    let plain: ModelConfig = serde_json::from_value(stored()).unwrap();
    let config = ModelConfig { attention_bias: true, mlp_bias: true, ..plain.clone() };
    let tensors = config.tensors();
    for (i, tensor) in tensors.iter().enumerate().filter(|(_, t)| t.name.ends_with(".bias")) {
        assert_eq!(tensors[i - 1].name, tensor.name.replace(".bias", ".weight"));
        assert_eq!(tensors[i - 1].shape[..1], tensor.shape[..]);
    }
    // q 8, k and v 4, o 8, gate and up 12, down 8; two layers.
    assert_eq!(config.parameters() - plain.parameters(), 2 * (8 + 4 + 4 + 8 + 12 + 12 + 8));
    assert_eq!(ModelConfig { mlp_bias: true, ..plain.clone() }.tensors().len(), plain.tensors().len() + 2 * 3);
    assert_eq!(config.adapter_tensors(2, &["q_proj".into()]), plain.adapter_tensors(2, &["q_proj".into()]));
}

#[test]
fn every_scaling_is_stored_and_read_again() {
    let mut config: ModelConfig = serde_json::from_value(stored()).unwrap();
    for scaling in [
        RopeScaling::Linear { factor: 8.0 },
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192 },
        RopeScaling::Yarn {
            factor: 4.0,
            original_context: 32,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: 1.138_629_436_111_989,
            truncate: true,
        },
    ] {
        config.rope_scaling = Some(scaling);
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<ModelConfig>(&text).unwrap(), config);
    }
}
