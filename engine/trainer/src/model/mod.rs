//! The Llama decoder over buffers of a device: forward, loss and backward of one micro-batch at a time.
//!
//! Read `layer.rs` first, then `projection.rs` (a linear layer with or without bias and adapter) and `head.rs` (logits and loss).
//! Nothing here sees a host slice of a weight or an activation: only the ids of a micro-batch go in, only sums come out.
//!
//! | letter | is the number of | letter | is the number of |
//! |---|---|---|---|
//! | N | rows of tokens of a micro-batch, B × T | H, K | query heads, key and value heads |
//! | D | elements of a token (hidden) | E | elements of a head |
//! | F | elements of the feed-forward part | R | rank of an adapter |
//! | V | entries of the vocabulary | | |
//!
//! Not here: the optimizer (`optimizer`), the order of a step (`step`), text (`generation`), other architectures.

pub mod decoder;
pub mod head;
pub mod layer;
pub mod parameter;
pub mod pass;
pub mod projection;
#[cfg(test)]
mod real;
pub mod rotary;
pub mod rows;
#[cfg(test)]
mod tests;
pub mod work;

use crate::arena::Arena;
use crate::batch::MicroBatch;
use crate::step::{Learner, Measured};
use crate::weights::WeightSource;
use decoder::Decoder;
use head::Head;
use kernels::group::Group;
use kernels::random::Draw;
use kernels::{Buffer, Device, Stream, elementwise, embedding, reduce};
use layer::{Kept, attend};
use parameter::Parameter;
use pass::{Input, Pass, Sizes};
use plan::memory::{ROOM, inference_table, layer_prefix};
use protocol::facts::ModelConfig;
use protocol::plan::{Method, Recompute};
use protocol::{Outcome, Problem};
use work::Work;

/// What a training model has beyond one that is only evaluated.
struct Training {
    work: Work,
    /// Σ nll and Σ gradient² of the step [2].
    sums: Buffer,
    /// Σ gradient² of each tensor [tensors].
    squares: Buffer,
    recompute: Recompute,
    seed: u64,
}

/// What makes a model a training one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingOptions {
    /// What the backward pass computes again.
    pub recompute: Recompute,
    /// Seed of dropout.
    pub seed: u64,
}

/// A decoder with room for one micro-batch.
pub struct Model {
    stream: Stream,
    config: ModelConfig,
    decoder: Decoder,
    input: Input,
    /// Input of each layer, and the last one's output.
    x: Vec<Buffer>,
    /// Activations a layer; the same ones for all where they are computed again, or never needed.
    kept: Vec<Kept>,
    head: Head,
    training: Option<Training>,
    group: Group,
    capacity: usize,
}

impl Model {
    /// A model that learns, from the lines of a plan's arena. `rows` = micro_batch × length.
    pub fn for_training(
        arena: &mut Arena,
        device: &Device,
        config: &ModelConfig,
        method: &Method,
        rows: usize,
        options: TrainingOptions,
        weights: &dyn WeightSource,
    ) -> Outcome<Model> {
        let mut names: Vec<String> = (0..config.layers).map(|l| format!("layer.{l}.x")).collect();
        names.push("final.x".into());
        let x = names.iter().map(|n| arena.take(n, rows * config.hidden as usize)).collect::<Outcome<Vec<_>>>()?;
        let mut model = Model::build(arena, device, config, method, rows, Some(options), weights, x)?;
        model.training = Some(Training {
            work: Work::take(arena, rows, config, method)?,
            sums: arena.take("step.sums", 2)?,
            squares: arena.take("step.squares", model.decoder.trained.len())?,
            recompute: options.recompute,
            seed: options.seed,
        });
        arena.reserve(ROOM, &model.stream)?;
        Ok(model)
    }

    /// A model that is only evaluated, with memory of its own for micro-batches of `micro_batch` × `length`.
    pub fn for_inference(
        device: &Device,
        config: &ModelConfig,
        method: &Method,
        micro_batch: u32,
        length: u32,
        weights: &dyn WeightSource,
    ) -> Outcome<Model> {
        let mut arena = Arena::new(device, &inference_table(config, method, micro_batch, length));
        let rows = micro_batch as usize * length as usize;
        let two: Vec<Buffer> = (0..2)
            .map(|l| arena.take(&format!("layer.{l}.x"), rows * config.hidden as usize))
            .collect::<Outcome<_>>()?;
        let x = (0..=config.layers as usize).map(|l| two[l % 2].clone()).collect();
        Model::build(&mut arena, device, config, method, rows, None, weights, x)
    }

    #[expect(clippy::too_many_arguments, reason = "the two constructors above name them; nothing else calls this")]
    fn build(
        arena: &mut Arena,
        device: &Device,
        config: &ModelConfig,
        method: &Method,
        rows: usize,
        options: Option<TrainingOptions>,
        weights: &dyn WeightSource,
        x: Vec<Buffer>,
    ) -> Outcome<Model> {
        let stream = device.stream();
        let decoder = Decoder::load(arena, config, method, options.is_some(), weights, &stream)?;
        let recompute = options.map_or(Recompute::Layers, |o| o.recompute);
        let sets = if recompute == Recompute::None { config.layers } else { 1 };
        let sets: Vec<Kept> = (0..sets)
            .map(|l| Kept::take(arena, &layer_prefix(l, recompute), rows, config, method))
            .collect::<Outcome<_>>()?;
        Ok(Model {
            kept: (0..config.layers as usize).map(|l| sets[l % sets.len()].clone()).collect(),
            input: Input::take(arena, rows, config, &stream)?,
            head: Head::take(arena, rows, config)?,
            training: None,
            group: Group::Solo,
            capacity: rows,
            config: config.clone(),
            stream,
            decoder,
            x,
        })
    }

    /// From now on each step's gradients and sums are added up over this group.
    pub fn join(&mut self, group: Group) {
        self.group = group;
    }

    /// Shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Most positions (rows × length) of a micro-batch.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Σ nll over the targets of a micro-batch, without dropout. Waits for the device.
    pub fn evaluate(&self, batch: &MicroBatch) -> Outcome<f64> {
        self.check(batch)?;
        let pass = self.input.pass(&self.stream, Sizes::of(&self.config), batch);
        self.forward(&pass);
        self.head.loss(&pass, &self.decoder, &self.input.targets);
        Ok(f64::from(self.stream.to_host(&self.head.loss)[0]))
    }

    /// The logits of a micro-batch [N × V], without dropout, on the host. Waits for the device.
    pub fn logits(&self, batch: &MicroBatch) -> Outcome<Vec<f32>> {
        self.check(batch)?;
        let pass = self.input.pass(&self.stream, Sizes::of(&self.config), batch);
        self.forward(&pass);
        let mut all = Vec::with_capacity(batch.places() * self.config.vocab as usize);
        for rows in self.head.chunks(0..batch.places()) {
            all.extend(self.stream.to_host(&self.head.logits(&pass, &self.decoder, rows)));
        }
        Ok(all)
    }

    /// From ids to the output of the final norm.
    fn forward(&self, pass: &Pass<'_>) {
        let n = pass.places();
        embedding::forward(pass.stream, &self.x(0, n), &self.decoder.embedding.weight, &self.input.tokens.first(n));
        for (l, layer) in self.decoder.layers.iter().enumerate() {
            layer.inner(pass, &self.x(l, n), &self.kept[l], attend);
            layer.outer(pass, &self.x(l + 1, n), &self.kept[l]);
        }
        self.head.normalise(pass, &self.decoder, &self.x(self.decoder.layers.len(), n));
    }

    /// From the loss back to the embedding, adding to the gradients of what moves.
    fn backward(&self, pass: &Pass<'_>, scale: f32, training: &Training) {
        let (n, work, last) = (pass.places(), &training.work, self.decoder.layers.len());
        self.head.loss_backward(pass, &self.decoder, &self.input.targets, &self.x(last, n), scale, work);
        for (l, layer) in self.decoder.layers.iter().enumerate().rev() {
            // The last layer's activations are still there from the forward pass.
            if training.recompute == Recompute::Layers && l + 1 < last {
                layer.again(pass, &self.x(l, n), &self.kept[l]);
            }
            layer.backward(pass, &self.x(l, n), &self.kept[l], work);
        }
        if let Some(dtable) = &self.decoder.embedding.gradient {
            embedding::backward(pass.stream, dtable, &work.dx.first(n), &self.input.tokens.first(n));
        }
    }

    /// Input of layer `layer`, the first `rows` rows.
    fn x(&self, layer: usize, rows: usize) -> Buffer {
        self.x[layer].slice(0..rows * self.config.hidden as usize)
    }

    fn training(&self) -> Outcome<&Training> {
        self.training.as_ref().ok_or_else(|| Problem::internal("a model without gradients was asked to learn"))
    }

    /// Name of the first parameter that holds a value which is not finite. Waits for the device.
    pub fn first_not_finite(&self) -> Option<String> {
        let finite = |p: &Parameter| {
            reduce::sum_of_squares(&self.stream, &self.head.loss, &p.weight);
            self.stream.to_host(&self.head.loss)[0].is_finite()
        };
        self.decoder.parameters().into_iter().find(|p| !finite(p)).map(|p| p.tensor.name.clone())
    }

    fn check(&self, batch: &MicroBatch) -> Outcome<()> {
        if batch.places() <= self.capacity {
            return Ok(());
        }
        let what =
            format!("a micro-batch of {} positions meets a model with room for {}", batch.places(), self.capacity);
        Err(Problem::internal(what))
    }
}

impl Learner for Model {
    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn parameters(&self) -> &[Parameter] {
        &self.decoder.trained
    }

    fn clear(&mut self) -> Outcome<()> {
        let training = self.training()?;
        elementwise::fill(&self.stream, &training.sums, 0.0);
        for gradient in self.decoder.trained.iter().filter_map(|p| p.gradient.as_ref()) {
            elementwise::fill(&self.stream, gradient, 0.0);
        }
        Ok(())
    }

    fn learn(&mut self, batch: &MicroBatch, step: u64, targets: u64) -> Outcome<()> {
        self.check(batch)?;
        let training = self.training()?;
        let mut pass = self.input.pass(&self.stream, Sizes::of(&self.config), batch);
        pass.dropout = Some(Draw { seed: training.seed, purpose: 0, step });
        pass.dropped = training.work.dropped.as_ref();
        self.forward(&pass);
        self.backward(&pass, (1.0 / targets as f64) as f32, training);
        elementwise::add(&self.stream, &training.sums.slice(0..1), &self.head.loss);
        Ok(())
    }

    fn share(&mut self) -> Outcome<()> {
        let training = self.training()?;
        for gradient in self.decoder.trained.iter().filter_map(|p| p.gradient.as_ref()) {
            self.group.all_reduce_sum(&self.stream, gradient);
        }
        self.group.all_reduce_sum(&self.stream, &training.sums.slice(0..1));
        Ok(())
    }

    fn measure(&mut self, targets: u64) -> Outcome<Measured> {
        let training = self.training()?;
        for (i, gradient) in self.decoder.trained.iter().filter_map(|p| p.gradient.as_ref()).enumerate() {
            reduce::sum_of_squares(&self.stream, &training.squares.slice(i..i + 1), gradient);
        }
        reduce::sum(&self.stream, &training.sums.slice(1..2), &training.squares);
        let sums = self.stream.to_host(&training.sums);
        Ok(Measured { loss: f64::from(sums[0]) / targets as f64, grad_norm: f64::from(sums[1]).sqrt() })
    }
}
