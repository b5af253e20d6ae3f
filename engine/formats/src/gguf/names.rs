//! Tensor names of GGUF and of Hugging Face, and the order of rows in the projections that rotary embeddings turn.
//!
//! Not here: which tensors a model has (`protocol::facts`).

use protocol::facts::ModelConfig;

/// Names within a layer, in the order in which llama.cpp's own converter writes them: GGUF, Hugging Face.
pub(super) const LAYER: [(&str, &str); 9] = [
    ("attn_norm", "input_layernorm"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_v", "self_attn.v_proj"),
];
/// Names outside layers.
pub(super) const OUTSIDE: [(&str, &str); 3] = [
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
];
/// Divisors of the rotary frequencies; not a parameter.
pub(super) const ROPE_FREQS: &str = "rope_freqs.weight";

/// The GGUF name of a Hugging Face parameter; `None` for one that Llama models do not have.
pub(super) fn to_gguf(name: &str) -> Option<String> {
    if let Some((gguf, _)) = OUTSIDE.iter().find(|(_, hf)| *hf == name) {
        return Some((*gguf).to_owned());
    }
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (path, kind) = rest.rsplit_once('.')?;
    let (gguf, _) = LAYER.iter().find(|(_, hf)| *hf == path)?;
    Some(format!("blk.{layer}.{gguf}.{kind}"))
}

/// Place of a parameter in a file: embedding, layers, final norm, head.
pub(super) fn order(name: &str) -> (u64, u64, usize, bool) {
    let Some((layer, part)) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
        let outside = OUTSIDE.iter().position(|(gguf, _)| *gguf == name).unwrap_or(OUTSIDE.len());
        return (if outside == 0 { 0 } else { 2 }, 0, outside, false);
    };
    let (path, kind) = part.rsplit_once('.').unwrap_or((part, ""));
    let within = LAYER.iter().position(|(gguf, _)| *gguf == path).unwrap_or(LAYER.len());
    (1, layer.parse().unwrap_or(u64::MAX), within, kind == "bias")
}

/// Heads of a projection whose rows lie in another order in GGUF: there the two numbers of a rotary pair are neighbours,
/// in Hugging Face's layout they are half a head apart.
pub(super) fn turned_heads(config: &ModelConfig, name: &str) -> Option<usize> {
    let path = name.rsplit_once('.').map_or(name, |(path, _)| path);
    match path.rsplit('.').next() {
        Some("q_proj") => Some(config.heads as usize),
        Some("k_proj") => Some(config.kv_heads as usize),
        _ => None,
    }
}

/// The Hugging Face row of a GGUF row, in heads of `width` rows.
pub(super) fn to_halves(row: usize, width: usize) -> usize {
    let (head, within) = (row / width, row % width);
    head * width + within % 2 * (width / 2) + within / 2
}

/// The GGUF row of a Hugging Face row.
pub(super) fn to_pairs(row: usize, width: usize) -> usize {
    let (head, within) = (row / width, row % width);
    head * width + within % (width / 2) * 2 + within / (width / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_a_name_of_its_own_and_a_place() {
        let tensors = crate::gguf::tests::config().tensors();
        let mut names: Vec<String> = tensors.iter().map(|t| to_gguf(&t.name).unwrap()).collect();
        names.sort_by_key(|name| order(name));
        assert_eq!(names[0], "token_embd.weight");
        assert_eq!(names[1], "blk.0.attn_norm.weight");
        assert_eq!(names[9], "blk.0.attn_v.weight");
        assert_eq!(names[10], "blk.1.attn_norm.weight");
        assert_eq!(names[names.len() - 2..], ["output_norm.weight", "output.weight"]);
        names.dedup();
        assert_eq!(names.len(), tensors.len());
        assert_eq!(to_gguf("model.layers.3.self_attn.q_proj.bias").unwrap(), "blk.3.attn_q.bias");
        assert_eq!(to_gguf("model.layers.0.mlp.experts.1.weight"), None);
    }

    #[test]
    fn rows_go_there_and_back() {
        for width in [2, 8, 64] {
            for row in 0..3 * width {
                assert_eq!(to_pairs(to_halves(row, width), width), row);
            }
        }
        assert_eq!((0..8).map(|r| to_halves(r, 8)).collect::<Vec<_>>(), [0, 4, 1, 5, 2, 6, 3, 7]);
    }
}
