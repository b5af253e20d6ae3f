//! The angles of rotary embeddings: what a model's configuration says, as the table that `kernels::rope` reads.
//!
//! Every scaling is what `transformers` computes for the same configuration; golden models hold the numbers against each
//! other. Not here: reading configurations (`formats::model_folder`), turning vectors (`kernels::rope`).

use protocol::facts::{ModelConfig, RopeScaling};
use std::f64::consts::TAU;

/// Angles a position and pair, and what cosines and sines are multiplied by.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    /// E / 2 inverse frequencies.
    pub inv_freq: Vec<f32>,
    /// 1 but for YaRN.
    pub scaling: f32,
}

impl Rotary {
    /// Of a configuration.
    pub fn of(config: &ModelConfig) -> Rotary {
        let plain = kernels::rope::frequencies(config.head_dim as usize, config.rope_theta);
        let each = |scale: &dyn Fn(usize, f64) -> f64| {
            plain.iter().enumerate().map(|(pair, f)| scale(pair, f64::from(*f)) as f32).collect()
        };
        match config.rope_scaling {
            None => Rotary { inv_freq: plain, scaling: 1.0 },
            Some(RopeScaling::Linear { factor }) => Rotary { inv_freq: each(&|_, f| f / factor), scaling: 1.0 },
            Some(RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context }) => {
                let (bands, context) = ([low_freq_factor, high_freq_factor], f64::from(original_context));
                Rotary { inv_freq: each(&|_, f| llama3(f, factor, bands, context)), scaling: 1.0 }
            }
            Some(RopeScaling::Yarn { factor, attention_factor, .. }) => {
                let kept = kept_by_yarn(config);
                let mix = |pair: usize, f: f64| f / factor * (1.0 - kept[pair]) + f * kept[pair];
                Rotary { inv_freq: each(&mix), scaling: attention_factor as f32 }
            }
        }
    }
}

/// Llama 3.1: pairs that turn fewer than `low` times in the original context are slowed down, those that turn more than
/// `high` times are kept, and those between are mixed by the number of their turns.
fn llama3(frequency: f64, factor: f64, [low, high]: [f64; 2], original_context: f64) -> f64 {
    let turns = original_context * frequency / TAU;
    let slowed = frequency / factor;
    let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
    (1.0 - kept) * slowed + kept * frequency
}

/// How much of each pair's own frequency YaRN keeps: 1 for the fast ones, 0 for the slow ones, a ramp over the pairs
/// between those that turn `beta_fast` and `beta_slow` times in the original context. All 1 without YaRN.
fn kept_by_yarn(config: &ModelConfig) -> Vec<f64> {
    let pairs = config.head_dim as usize / 2;
    let Some(RopeScaling::Yarn { original_context, beta_fast, beta_slow, truncate, .. }) = config.rope_scaling else {
        return vec![1.0; pairs];
    };
    let width = f64::from(config.head_dim);
    // The pair, as a fraction, that turns so many times in the original context.
    let pair_of =
        |turns: f64| width * (f64::from(original_context) / (turns * TAU)).ln() / (2.0 * config.rope_theta.ln());
    let (first, last) = (pair_of(beta_fast), pair_of(beta_slow));
    let (first, last) = if truncate { (first.floor(), last.ceil()) } else { (first, last) };
    let (first, last) = (first.max(0.0), last.min(width - 1.0));
    // As transformers: a ramp of no width has a small one.
    let span = if first == last { 0.001 } else { last - first };
    (0..pairs).map(|pair| 1.0 - ((pair as f64 - first) / span).clamp(0.0, 1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Golden, folder, odd_config};

    /// The table of a golden model: its reference's, to the last bits of f32.
    fn as_in_transformers(name: &str, golden: &str) {
        let found = Rotary::of(&folder(&format!("models/{name}")).0);
        let reference = Golden::open(&format!("models/{golden}/golden.safetensors"));
        let wanted = reference.f32("rope.inv_freq");
        assert_eq!(found.inv_freq.len(), wanted.len(), "{name}");
        for (pair, (found, wanted)) in found.inv_freq.iter().zip(&wanted).enumerate() {
            assert!((found / wanted - 1.0).abs() < 1e-6, "{name}: pair {pair} is {found}, not {wanted}");
        }
        let scaling = reference.f32("rope.attention_scaling")[0];
        assert!((found.scaling - scaling).abs() < 1e-6, "{name}: {} and {scaling}", found.scaling);
    }

    #[test]
    fn every_scaling_gives_the_frequencies_of_transformers() {
        for name in ["llama", "llama31", "llama_rope_linear", "llama_rope_yarn", "llama_bias"] {
            as_in_transformers(name, name);
        }
        as_in_transformers("llama31_v5", "llama31");
    }

    fn yarn(beta_fast: f64, beta_slow: f64, truncate: bool) -> Rotary {
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            original_context: 64,
            beta_fast,
            beta_slow,
            attention_factor: 1.25,
            truncate,
        };
        Rotary::of(&ModelConfig { head_dim: 16, rope_scaling: Some(scaling), ..odd_config(true) })
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_divides_slow_ones() {
        let (plain, scaled) = (kernels::rope::frequencies(16, 1e4), yarn(8.0, 1.0, true));
        assert_eq!((scaled.inv_freq[0], scaled.inv_freq[7], scaled.scaling), (plain[0], plain[7] / 4.0, 1.25));
        // Pairs 0.21 and 2.02 turn that often: rounded outwards the ramp goes from 0 to 3.
        assert!((f64::from(scaled.inv_freq[1] / plain[1]) - (2.0 / 3.0 + 1.0 / 12.0)).abs() < 1e-6, "{scaled:?}");
        let exact = yarn(8.0, 1.0, false);
        assert!(exact.inv_freq[1] < scaled.inv_freq[1], "{exact:?}");
        // Both bounds the same pair.
        let step = yarn(2.0, 2.0, false);
        assert_eq!((step.inv_freq[0], step.inv_freq[2]), (plain[0], plain[2] / 4.0));
    }
}
