//! The parameters of a decoder: taken from the arena and loaded, tensor by tensor.

use super::layer::{Layer, Reach};
use super::parameter::Parameter;
use super::projection::{Adapter, Projection};
use crate::arena::Arena;
use crate::random;
use crate::weights::WeightSource;
use kernels::Stream;
use plan::memory::trained_tensors;
use protocol::facts::{ModelConfig, PROJECTIONS, TensorShape};
use protocol::plan::Method;
use protocol::{Outcome, Problem};
use std::collections::HashMap;

/// All parameters, in their places.
pub struct Decoder {
    pub(crate) embedding: Parameter,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Parameter,
    /// The output head; the embedding itself where it is shared.
    pub(crate) head: Parameter,
    /// What moves, in canonical order; empty where nothing is trained.
    pub(crate) trained: Vec<Parameter>,
}

impl Decoder {
    /// Loads every parameter; those that `method` moves get a gradient where `trains`.
    pub fn load(
        arena: &mut Arena,
        config: &ModelConfig,
        method: &Method,
        trains: bool,
        weights: &dyn WeightSource,
        stream: &Stream,
    ) -> Outcome<Decoder> {
        let moving: Vec<TensorShape> = trained_tensors(config, method);
        let adapters = if *method == Method::Full { Vec::new() } else { moving.clone() };
        let mut parameters = Parameters(HashMap::new());
        for tensor in config.tensors().into_iter().chain(adapters) {
            let moves = trains && moving.contains(&tensor);
            let name = tensor.name.clone();
            parameters.0.insert(name, Parameter::load(tensor, moves, arena, weights, stream)?);
        }
        parameters.assemble(config, method, if trains { &moving } else { &[] })
    }

    /// All parameters, in the order of the forward pass.
    pub fn parameters(&self) -> Vec<&Parameter> {
        let layers = self.layers.iter().flat_map(|layer| {
            let adapters = layer.projections.iter().filter_map(|p| p.adapter.as_ref()).flat_map(|a| [&a.a, &a.b]);
            let weights = layer.projections.iter().flat_map(|p| [&p.weight].into_iter().chain(&p.bias));
            [&layer.attention_norm, &layer.mlp_norm].into_iter().chain(weights).chain(adapters)
        });
        [&self.embedding].into_iter().chain(layers).chain([&self.norm, &self.head]).collect()
    }
}

/// Parameters by name, until each is in its place.
struct Parameters(HashMap<String, Parameter>);

impl Parameters {
    fn get(&self, name: &str) -> Outcome<Parameter> {
        self.0.get(name).cloned().ok_or_else(|| Problem::internal(format!("the decoder has no tensor {name}")))
    }

    fn assemble(&self, config: &ModelConfig, method: &Method, trained: &[TensorShape]) -> Outcome<Decoder> {
        let embedding = self.get("model.embed_tokens.weight")?;
        let head = if config.tied { embedding.clone() } else { self.get("lm_head.weight")? };
        Ok(Decoder {
            layers: (0..config.layers).map(|l| self.layer(config, l, method)).collect::<Outcome<_>>()?,
            norm: self.get("model.norm.weight")?,
            trained: trained.iter().map(|t| self.get(&t.name)).collect::<Outcome<_>>()?,
            embedding,
            head,
        })
    }

    fn layer(&self, config: &ModelConfig, layer: u32, method: &Method) -> Outcome<Layer> {
        let norm = |name: &str| self.get(&format!("model.layers.{layer}.{name}.weight"));
        let [q, k, v, o, gate, up, down] = PROJECTIONS.map(|p| self.projection(config, layer, p, method));
        Ok(Layer {
            attention_norm: norm("input_layernorm")?,
            mlp_norm: norm("post_attention_layernorm")?,
            projections: [q?, k?, v?, o?, gate?, up?, down?],
            reach: Reach::of(method, layer),
        })
    }

    fn projection(&self, config: &ModelConfig, layer: u32, name: &str, method: &Method) -> Outcome<Projection> {
        let path = ModelConfig::projection_path(layer, name);
        let weight = self.get(&format!("{path}.weight"))?;
        let bias = if config.biased(name) { Some(self.get(&format!("{path}.bias"))?) } else { None };
        let adapter = match method {
            Method::Lora { rank, alpha, dropout, targets } if targets.iter().any(|t| t == name) => Some(Adapter {
                a: self.get(&format!("base_model.model.{path}.lora_A.weight"))?,
                b: self.get(&format!("base_model.model.{path}.lora_B.weight"))?,
                scale: (alpha / f64::from(*rank)) as f32,
                dropout: *dropout as f32,
                purpose: random::dropout_purpose(layer, name),
            }),
            _ => None,
        };
        Ok(Projection { weight, bias, adapter })
    }
}
