//! What a micro-batch carries through the model: its shape and its ids on the device.

use super::rotary::Rotary;
use super::rows::Rows;
use crate::arena::Arena;
use crate::batch::MicroBatch;
use kernels::random::Draw;
use kernels::{Buffer, Stream, attention};
use protocol::Outcome;
use protocol::facts::ModelConfig;

/// The numbers of a shape, as lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// D.
    pub hidden: usize,
    /// F.
    pub intermediate: usize,
    /// H.
    pub heads: usize,
    /// K.
    pub kv_heads: usize,
    /// E.
    pub head_dim: usize,
    /// V.
    pub vocab: usize,
    /// Epsilon of the norms.
    pub eps: f32,
}

impl Sizes {
    /// Of a configuration.
    pub fn of(config: &ModelConfig) -> Sizes {
        Sizes {
            hidden: config.hidden as usize,
            intermediate: config.intermediate as usize,
            heads: config.heads as usize,
            kv_heads: config.kv_heads as usize,
            head_dim: config.head_dim as usize,
            vocab: config.vocab as usize,
            eps: config.rms_norm_eps as f32,
        }
    }

    /// Width of queries.
    pub fn q(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of keys, and of values.
    pub fn kv(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// One way of a micro-batch through the model: what all layers share.
pub struct Pass<'a> {
    /// Order of work.
    pub stream: &'a Stream,
    /// The model's shape.
    pub sizes: Sizes,
    /// B.
    pub rows: usize,
    /// T.
    pub length: usize,
    /// Position in the segment [N].
    pub positions: Buffer,
    /// First visible place in the row [N].
    pub segment_starts: Buffer,
    /// Angles a position [E / 2].
    pub inv_freq: Buffer,
    /// What cosines and sines of these angles are multiplied by.
    pub rotary_scaling: f32,
    /// Seed and step of dropout; `None` where nothing is dropped.
    pub dropout: Option<Draw>,
    /// What tells the first row apart; the others follow.
    pub first_sample: u64,
    /// Room for one input after dropout.
    pub dropped: Option<&'a Rows>,
}

impl Pass<'_> {
    /// N.
    pub fn places(&self) -> usize {
        self.rows * self.length
    }

    /// Sizes of attention, scores scaled by 1 / √E.
    pub fn attention_shape(&self) -> attention::Shape {
        let Sizes { heads, kv_heads, head_dim, .. } = self.sizes;
        let scale = 1.0 / (head_dim as f32).sqrt();
        attention::Shape { rows: self.rows, length: self.length, heads, kv_heads, head_dim, scale }
    }
}

/// Ids of a micro-batch on the device.
pub struct Input {
    /// Token ids [N].
    pub tokens: Rows,
    /// What each predicts [N].
    pub targets: Rows,
    positions: Rows,
    segment_starts: Rows,
    inv_freq: Buffer,
    rotary_scaling: f32,
}

impl Input {
    /// Takes the buffers `input.…` for `rows` rows and fills in the angles.
    pub fn take(arena: &mut Arena, rows: usize, config: &ModelConfig, stream: &Stream) -> Outcome<Input> {
        let rotary = Rotary::of(config);
        let inv_freq = arena.take("rope.inv_freq", rotary.inv_freq.len())?;
        stream.copy_from_host(&inv_freq, &rotary.inv_freq);
        Ok(Input {
            tokens: Rows::take_ids(arena, "input.tokens", rows)?,
            positions: Rows::take_ids(arena, "input.positions", rows)?,
            segment_starts: Rows::take_ids(arena, "input.segment_starts", rows)?,
            targets: Rows::take_ids(arena, "input.targets", rows)?,
            inv_freq,
            rotary_scaling: rotary.scaling,
        })
    }

    /// Brings a micro-batch to the device and starts its way through the model.
    pub fn pass<'a>(&self, stream: &'a Stream, sizes: Sizes, batch: &MicroBatch) -> Pass<'a> {
        let n = batch.places();
        for (to, from) in [
            (&self.tokens, &batch.tokens),
            (&self.positions, &batch.positions),
            (&self.segment_starts, &batch.segment_starts),
            (&self.targets, &batch.targets),
        ] {
            stream.copy_from_host(&to.first(n), from);
        }
        Pass {
            stream,
            sizes,
            rows: batch.rows,
            length: batch.length,
            positions: self.positions.first(n),
            segment_starts: self.segment_starts.first(n),
            inv_freq: self.inv_freq.clone(),
            rotary_scaling: self.rotary_scaling,
            dropout: None,
            first_sample: batch.samples.first().copied().unwrap_or(0),
            dropped: None,
        }
    }
}
