//! Where the values of parameters come from: a model folder, an adapter, a checkpoint, or fresh random numbers.

use crate::random::{self, Purpose};
use formats::adapter::Adapter;
use formats::fingerprint;
use formats::model_folder::{ModelFolder, SpecialIds};
use kernels::random::Draw;
use kernels::{Buffer, Stream, elementwise, random as kernel_random};
use protocol::facts::{ModelConfig, TensorShape};
use protocol::plan::{Method, ModelSource, Plan};
use protocol::{Code, Outcome, Problem};
use std::path::Path;

/// Gives the values of tensors, one at a time.
pub trait WeightSource {
    /// Puts the values of `tensor` into `buffer`.
    fn load(&self, tensor: &TensorShape, stream: &Stream, buffer: &Buffer) -> Outcome<()>;

    /// Ids besides the end token that the model's configuration names.
    fn special_ids(&self) -> SpecialIds {
        SpecialIds::default()
    }
}

/// Where a run's first weights come from: the plan's folder or fresh numbers, with a fresh adapter where there is one.
pub fn first(plan: &Plan) -> Outcome<Box<dyn WeightSource>> {
    let (base, seed) = (base(plan)?, plan.run.seed);
    Ok(match &plan.method {
        Method::Full => base,
        Method::Lora { .. } => Box::new(WithAdapter { base, adapter: Box::new(FreshAdapter { seed }) }),
    })
}

/// Where a restored run's weights come from: the checkpoint, with the plan's base below an adapter.
pub fn restored(plan: &Plan, checkpoint: &Path) -> Outcome<Box<dyn WeightSource>> {
    Ok(match &plan.method {
        Method::Full => Box::new(ModelFolder::open(checkpoint)?),
        Method::Lora { .. } => {
            Box::new(WithAdapter { base: base(plan)?, adapter: Box::new(Adapter::open(checkpoint)?) })
        }
    })
}

fn base(plan: &Plan) -> Outcome<Box<dyn WeightSource>> {
    Ok(match &plan.model.source {
        ModelSource::Folder { path } => Box::new(unchanged(path, &plan.model.fingerprint)?),
        ModelSource::Scratch => Box::new(Fresh::new(&plan.model.config, plan.run.seed)),
    })
}

/// The model folder at `path`, refused by name where its weights are not those that were planned with.
fn unchanged(path: &Path, fingerprint: &str) -> Outcome<ModelFolder> {
    let folder = ModelFolder::open(path)?;
    if fingerprint::files(&folder.weight_files())? == fingerprint {
        return Ok(folder);
    }
    Err(Problem::new(Code::ModelChanged, "the weights of the model changed since the job was planned")
        .file(path)
        .kept("the run's checkpoints are untouched")
        .remedy("put the model back as it was, or start a new job"))
}

/// Fresh weights: normal with standard deviation `initializer_range`; norms 1, biases 0. Each value is a function of seed, tensor
/// and place.
pub struct Fresh {
    order: Vec<String>,
    deviation: f32,
    seed: u64,
}

impl Fresh {
    /// For a shape.
    pub fn new(config: &ModelConfig, seed: u64) -> Fresh {
        let order = config.tensors().into_iter().map(|t| t.name).collect();
        Fresh { order, deviation: config.initializer_range as f32, seed }
    }
}

impl WeightSource for Fresh {
    fn load(&self, tensor: &TensorShape, stream: &Stream, buffer: &Buffer) -> Outcome<()> {
        if tensor.shape.len() == 1 {
            elementwise::fill(stream, buffer, if tensor.name.ends_with(".bias") { 0.0 } else { 1.0 });
            return Ok(());
        }
        let place = self.order.iter().position(|name| *name == tensor.name).unwrap_or(self.order.len());
        let draw = Draw { seed: self.seed, purpose: random::weights_purpose(place), step: 0 };
        kernel_random::normal(stream, buffer, 0.0, self.deviation, draw);
        Ok(())
    }
}

/// A fresh adapter, as PEFT makes it: A is Kaiming uniform with a = √5, that is uniform within ±1/√in; B is zero, so that
/// training starts from the base model.
pub struct FreshAdapter {
    /// Seed.
    pub seed: u64,
}

impl WeightSource for FreshAdapter {
    fn load(&self, tensor: &TensorShape, stream: &Stream, buffer: &Buffer) -> Outcome<()> {
        if tensor.name.ends_with(".lora_B.weight") {
            elementwise::fill(stream, buffer, 0.0);
            return Ok(());
        }
        let bound = 1.0 / (tensor.shape.last().copied().unwrap_or(1).max(1) as f64).sqrt();
        let name = random::name(&tensor.name);
        let value = |i: u64| (bound * (2.0 * random::unit(self.seed, Purpose::Adapter, &[name, i]) - 1.0)) as f32;
        stream.copy_from_host(buffer, &(0..tensor.elements()).map(value).collect::<Vec<f32>>());
        Ok(())
    }
}

/// A base and an adapter over it.
pub struct WithAdapter {
    /// Gives the model's own tensors.
    pub base: Box<dyn WeightSource>,
    /// Gives those of the adapter.
    pub adapter: Box<dyn WeightSource>,
}

impl WeightSource for WithAdapter {
    fn load(&self, tensor: &TensorShape, stream: &Stream, buffer: &Buffer) -> Outcome<()> {
        let from = if tensor.name.starts_with("base_model.") { &self.adapter } else { &self.base };
        from.load(tensor, stream, buffer)
    }

    fn special_ids(&self) -> SpecialIds {
        self.base.special_ids()
    }
}

impl WeightSource for ModelFolder {
    fn special_ids(&self) -> SpecialIds {
        ModelFolder::special_ids(self)
    }

    fn load(&self, tensor: &TensorShape, stream: &Stream, buffer: &Buffer) -> Outcome<()> {
        let mut values = vec![0.0; buffer.len()];
        self.read_f32(&tensor.name, &mut values)?;
        stream.copy_from_host(buffer, &values);
        Ok(())
    }
}

impl WeightSource for Adapter {
    fn load(&self, tensor: &TensorShape, stream: &Stream, buffer: &Buffer) -> Outcome<()> {
        let mut values = vec![0.0; buffer.len()];
        self.read_f32(&tensor.name, &mut values)?;
        stream.copy_from_host(buffer, &values);
        Ok(())
    }
}
