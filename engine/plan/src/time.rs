//! How long a step takes: FLOPs over the machine's matrix speed, bytes over its memory speed.
//!
//! Work for one token, with P the weights that multiply (projections and output head), A = 2 × span × query width × layers
//! the attention (scores and values, 4 FLOPs a pair and dimension, halved because it is causal), and L the adapter:
//!
//! * forward 2 P + A + 2 L;
//! * backward twice that; frozen weights save the half that makes their own gradient: 2 P + 2 A + 4 L;
//! * recomputation adds the forward of the layers again, the head excluded.
//!
//! Bytes: each micro-batch moves the weights through memory for each product; AdamW moves 28 bytes for each parameter that it
//! updates (reads weight, gradient and two moments, writes weight and two moments). Ranks that share a step send each
//! gradient around a ring: 2 (n - 1) / n times.
//!
//! Not here: measuring (`anneal bench`).

use crate::fit::Load;
use crate::ranks::Ranks;
use protocol::facts::{MachineFacts, ModelConfig, PROJECTIONS, TensorShape};
use protocol::job::Precision;
use protocol::plan::{Method, Predicted, Recompute};

/// Bytes AdamW moves for one f32 parameter.
const OPTIMIZER_BYTES: f64 = 28.0;
/// Share of the matrix speed that a whole step reaches on wide layers; the rest goes to norms, softmax, cross-entropy and
/// activations, which are bound by memory.
const EFFICIENCY: f64 = 0.8;
/// Width at which half of that is left: narrow layers spend relatively more on everything around the products.
const HALF_WIDTH: f64 = 64.0;

/// Speed in GB/s at which cards add up their gradients where nothing is known of the way between them: PCIe 4.0, half used.
const LINK_GB_PER_SECOND: f64 = 12.0;

/// What the time of a step is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speeds {
    gemm_gflops: f64,
    memory_gb_per_second: f64,
}

impl Speeds {
    fn of(ranks: &Ranks, machine: &MachineFacts) -> Speeds {
        match ranks.card() {
            None => Speeds { gemm_gflops: machine.gemm_gflops, memory_gb_per_second: machine.memory_gb_per_second },
            Some(card) => Speeds {
                gemm_gflops: match ranks.precision {
                    Precision::Bf16 => card.gemm_gflops_bf16,
                    Precision::F32 => card.gemm_gflops,
                },
                memory_gb_per_second: card.memory_gb_per_second,
            },
        }
    }
}

/// FLOPs for one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Work {
    /// Forward.
    pub(crate) forward: f64,
    /// Backward, without recomputation.
    pub(crate) backward: f64,
    /// Forward of the layers once more.
    pub(crate) recompute: f64,
}

/// Work for one token that attends to `span` tokens at most.
pub(crate) fn work(config: &ModelConfig, method: &Method, span: f64) -> Work {
    let layers = layer_weights(config) as f64;
    let head = config.vocab as f64 * config.hidden as f64;
    let adapter = match method {
        Method::Full => 0.0,
        Method::Lora { .. } => moving_parameters(config, method) as f64,
    };
    let attention = 2.0 * span * (config.heads as f64 * config.head_dim as f64) * config.layers as f64;
    let weights_backward = if *method == Method::Full { 4.0 } else { 2.0 };
    Work {
        forward: 2.0 * (layers + head + adapter) + attention,
        backward: weights_backward * (layers + head) + 2.0 * attention + 4.0 * adapter,
        recompute: 2.0 * (layers + adapter) + attention,
    }
}

/// FLOPs of one training step for each of its tokens, without recomputation.
pub fn flops_per_token(config: &ModelConfig, method: &Method, span: f64) -> f64 {
    let work = work(config, method, span);
    work.forward + work.backward
}

/// Weights of all projections.
fn layer_weights(config: &ModelConfig) -> u64 {
    let layer: u64 = PROJECTIONS.iter().filter_map(|p| config.projection(p)).map(|[out, input]| out * input).sum();
    layer * config.layers as u64
}

/// Parameters that the optimizer updates.
pub(crate) fn moving_parameters(config: &ModelConfig, method: &Method) -> u64 {
    match method {
        Method::Full => config.parameters(),
        Method::Lora { rank, targets, .. } => {
            config.adapter_tensors(*rank, targets).iter().map(TensorShape::elements).sum()
        }
    }
}

/// Time, speed and utilisation of one step.
pub(crate) fn predict(load: &Load, micro_batch: u32, recompute: Recompute, machine: &MachineFacts) -> Predicted {
    let config = &load.model.config;
    let rows = load.rows_a_rank() as f64;
    let ranks = load.ranks.count() as f64;
    let speeds = Speeds::of(load.ranks, machine);
    let work = work(config, load.method, load.row.span);
    let again = if recompute == Recompute::Layers { work.recompute } else { 0.0 };
    let width = config.hidden as f64;
    let speed = speeds.gemm_gflops * 1e9 * EFFICIENCY * width / (width + HALF_WIDTH);
    let bandwidth = speeds.memory_gb_per_second * 1e9;

    let products = rows * load.row.computed(micro_batch) * (work.forward + work.backward + again) / speed;
    let micro_batches = (rows / micro_batch as f64).ceil();
    let streams = micro_batches * passes(load.method, recompute) * 4.0 * config.parameters() as f64 / bandwidth;
    let update = OPTIMIZER_BYTES * moving_parameters(config, load.method) as f64 / bandwidth;
    let shared = 2.0 * (ranks - 1.0) / ranks * 4.0 * moving_parameters(config, load.method) as f64;
    let seconds = products + streams + update + shared / (LINK_GB_PER_SECOND * 1e9);

    let tokens = load.rows_a_step() as f64 * load.row.mean;
    Predicted {
        step_ms: seconds * 1e3,
        tokens_per_second: tokens / seconds,
        mfu: tokens * (work.forward + work.backward) / seconds / (ranks * speeds.gemm_gflops * 1e9),
    }
}

/// How often a micro-batch moves all weights through memory. A product reads them, writes them in the order its kernel
/// wants and reads that again; gradients of weights are read and written once more where they move.
fn passes(method: &Method, recompute: Recompute) -> f64 {
    const PACKED: f64 = 3.0;
    let gradients = if *method == Method::Full { 2.0 } else { 0.0 };
    let again = if recompute == Recompute::Layers { PACKED } else { 0.0 };
    2.0 * PACKED + gradients + again
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape of a 135-million-parameter Llama, whose work is known from counting by hand.
    fn llama_135m() -> ModelConfig {
        ModelConfig {
            layers: 30,
            hidden: 576,
            intermediate: 1536,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            vocab: 49152,
            ..crate::preset("nano", 49152).unwrap()
        }
    }

    #[test]
    fn work_of_a_known_shape_is_as_counted_by_hand() {
        let full = work(&llama_135m(), &Method::Full, 256.0);
        assert!(((full.forward + full.backward) / 1e9 - 0.833).abs() < 0.001, "{full:?}");
        let targets = PROJECTIONS.map(str::to_owned).to_vec();
        let lora = work(&llama_135m(), &Method::Lora { rank: 16, alpha: 32.0, dropout: 0.0, targets }, 256.0);
        assert!(((lora.forward + lora.backward) / 1e9 - 0.594).abs() < 0.001, "{lora:?}");
    }
}
