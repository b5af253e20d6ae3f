//! Text from a model: the prompt in one pass, then a token at a time over a cache of keys and values.
//!
//! Sampling is a function of seed and place: the same call gives the same text. Not here: tokenizers and templates (the
//! `generate` verb gets ids from a sandboxed child and gives ids back).

use crate::arena::Arena;
use crate::batch::{IGNORE, MicroBatch};
use crate::model::decoder::Decoder;
use crate::model::head::Head;
use crate::model::layer::Kept;
use crate::model::pass::{Input, Pass, Sizes};
use crate::random::{self, Purpose};
use crate::weights::WeightSource;
use kernels::attention::{self, Cache};
use kernels::{Buffer, Device, Stream, elementwise, embedding};
use plan::memory::{generation_table, layer_prefix};
use protocol::facts::ModelConfig;
use protocol::plan::{Method, Recompute};
use protocol::{Code, Outcome, Problem};

/// How tokens are chosen and where the text ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Most new tokens.
    pub max_tokens: usize,
    /// 0 = always the likeliest token.
    pub temperature: f64,
    /// Seed of sampling.
    pub seed: u64,
    /// Tokens that end the text; they are not part of it.
    pub ends: Vec<u32>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model wrote an end token.
    End,
    /// `max_tokens` are written.
    Length,
    /// The model's context is full.
    Context,
}

impl Stop {
    /// "end", "length", "context".
    pub fn word(self) -> &'static str {
        match self {
            Stop::End => "end",
            Stop::Length => "length",
            Stop::Context => "context",
        }
    }
}

/// A model that writes one text.
pub struct Generator {
    stream: Stream,
    config: ModelConfig,
    decoder: Decoder,
    input: Input,
    x: [Buffer; 2],
    kept: Kept,
    head: Head,
    /// Keys and values of each layer [context, K × E].
    caches: Vec<[Buffer; 2]>,
    context: usize,
    rows: usize,
}

impl Generator {
    /// A generator for prompts of at most `prompt` tokens and texts of at most `context` tokens with their prompt; a context
    /// beyond the model's is cut to it.
    /// Errors: `OutOfMemory`, those of `weights`.
    pub fn new(
        device: &Device,
        config: &ModelConfig,
        method: &Method,
        prompt: u32,
        context: u32,
        weights: &dyn WeightSource,
    ) -> Outcome<Generator> {
        let context = context.min(config.context);
        let prompt = prompt.clamp(1, context.max(1));
        let mut arena = Arena::new(device, &generation_table(config, method, prompt, context));
        let (stream, rows, sizes) = (device.stream(), prompt as usize, Sizes::of(config));
        let x = |arena: &mut Arena, l: usize| arena.take(&format!("layer.{l}.x"), rows * sizes.hidden);
        Ok(Generator {
            decoder: Decoder::load(&mut arena, config, method, false, weights, &stream)?,
            input: Input::take(&mut arena, rows, config, &stream)?,
            x: [x(&mut arena, 0)?, x(&mut arena, 1)?],
            kept: Kept::take(&mut arena, &layer_prefix(0, Recompute::Layers), rows, config, method)?,
            head: Head::take(&mut arena, rows, config)?,
            caches: (0..config.layers)
                .map(|l| cache(&mut arena, l, context as usize * sizes.kv()))
                .collect::<Outcome<_>>()?,
            context: context as usize,
            config: config.clone(),
            stream,
            rows,
        })
    }

    /// Continues `prompt`; `each` is told every new token as it comes. Returns the new tokens, end token left out.
    /// Errors: `SettingInvalid` for an empty prompt, one that is too long or that holds an unknown id; `NotFinite` when the
    /// model's logits are no numbers.
    pub fn write(
        &mut self,
        prompt: &[u32],
        options: &Options,
        each: &mut dyn FnMut(u32) -> Outcome<()>,
    ) -> Outcome<(Vec<u32>, Stop)> {
        self.check(prompt)?;
        let most = options.max_tokens.min(self.context - prompt.len());
        let mut written: Vec<u32> = Vec::new();
        let mut logits = self.advance(prompt, 0);
        while written.len() < most {
            let token = choose(&logits, options, written.len() as u64)?;
            if options.ends.contains(&token) {
                return Ok((written, Stop::End));
            }
            written.push(token);
            each(token)?;
            if written.len() < most {
                logits = self.advance(&[token], prompt.len() + written.len() - 1);
            }
        }
        Ok((written, if most < options.max_tokens { Stop::Context } else { Stop::Length }))
    }

    fn check(&self, prompt: &[u32]) -> Outcome<()> {
        let invalid = |what: String| Err(Problem::new(Code::SettingInvalid, what).field("prompt"));
        if prompt.is_empty() {
            return invalid("the prompt holds no token".into());
        }
        if prompt.len() > self.rows {
            return invalid(format!(
                "the prompt has {} tokens; {} fit into the model's context",
                prompt.len(),
                self.rows
            ));
        }
        match prompt.iter().find(|id| **id >= self.config.vocab) {
            Some(id) => invalid(format!("token {id} is outside the model's vocabulary of {}", self.config.vocab)),
            None => Ok(()),
        }
    }

    /// Takes `tokens` after `past` others; returns the logits after the last of them.
    fn advance(&mut self, tokens: &[u32], past: usize) -> Vec<f32> {
        let n = tokens.len();
        let batch = follow(tokens, past);
        let pass = self.input.pass(&self.stream, Sizes::of(&self.config), &batch);
        let x = |l: usize| self.x[l % 2].slice(0..n * pass.sizes.hidden);
        embedding::forward(&self.stream, &x(0), &self.decoder.embedding.weight, &self.input.tokens.first(n));
        for (l, layer) in self.decoder.layers.iter().enumerate() {
            layer.inner(&pass, &x(l), &self.kept, |pass, kept| attend(pass, kept, &self.caches[l], past));
            layer.outer(&pass, &x(l + 1), &self.kept);
        }
        self.head.normalise(&pass, &self.decoder, &x(self.decoder.layers.len()));
        self.stream.to_host(&self.head.logits(&pass, &self.decoder, n - 1..n))
    }
}

fn cache(arena: &mut Arena, layer: u32, len: usize) -> Outcome<[Buffer; 2]> {
    Ok([arena.take(&format!("layer.{layer}.keys"), len)?, arena.take(&format!("layer.{layer}.values"), len)?])
}

/// `tokens` as one row that starts at position `past`.
fn follow(tokens: &[u32], past: usize) -> MicroBatch {
    let n = tokens.len();
    MicroBatch {
        rows: 1,
        length: n,
        tokens: tokens.to_vec(),
        positions: (past as u32..).take(n).collect(),
        segment_starts: vec![0; n],
        targets: vec![IGNORE; n],
        samples: vec![0],
    }
}

/// Appends the new keys and values to the cache and attends over all of it.
fn attend(pass: &Pass<'_>, kept: &Kept, [k, v]: &[Buffer; 2], past: usize) {
    let (n, kv) = (pass.places(), pass.sizes.kv());
    for (cache, new) in [(k, &kept.k), (v, &kept.v)] {
        elementwise::copy(pass.stream, &cache.slice(past * kv..(past + n) * kv), &new.first(n));
    }
    let attention::Shape { heads, kv_heads, head_dim, scale, .. } = pass.attention_shape();
    let cache = Cache { k, v, past, heads, kv_heads, head_dim, scale };
    attention::decode(pass.stream, &kept.attention.first(n), &kept.q.first(n), cache);
}

/// The next token: the likeliest (the first of equals), or one drawn from softmax(logits / temperature).
fn choose(logits: &[f32], options: &Options, place: u64) -> Outcome<u32> {
    let mut best = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[best] {
            best = i;
        }
    }
    if logits.iter().any(|x| x.is_nan()) || !logits.get(best).is_some_and(|x| x.is_finite()) {
        return Err(Problem::new(Code::NotFinite, "the model's output is not a number").remedy("check its weights"));
    }
    if options.temperature <= 0.0 {
        return Ok(best as u32);
    }
    let top = f64::from(logits[best]);
    let weight = |x: &f32| ((f64::from(*x) - top) / options.temperature).exp();
    let total: f64 = logits.iter().map(weight).sum();
    let mut left = total * random::unit(options.seed, Purpose::Sampling, &[place]);
    for (i, x) in logits.iter().enumerate() {
        left -= weight(x);
        if left < 0.0 {
            return Ok(i as u32);
        }
    }
    Ok(best as u32)
}

#[cfg(test)]
mod tests;
