//! From the last layer to the loss: final norm, then logits and cross-entropy a chunk of rows at a time, so that the
//! logits of a whole micro-batch never exist.

use super::decoder::Decoder;
use super::pass::{Pass, Sizes};
use super::rows::Rows;
use super::work::Work;
use crate::arena::Arena;
use kernels::matmul::{self, Shape};
use kernels::{Buffer, cross_entropy, reduce, rms_norm};
use plan::memory::head_rows;
use protocol::Outcome;
use protocol::facts::ModelConfig;
use std::ops::Range;

/// Buffers between the last layer and the loss.
pub struct Head {
    /// Output of the final norm [N, D].
    pub(crate) norm: Rows,
    rstd: Rows,
    /// Logits of one chunk, or their gradients [chunk, V].
    logits: Rows,
    pub(super) nll: Rows,
    /// Σ nll of a micro-batch [1].
    pub(crate) loss: Buffer,
    /// Rows of a chunk.
    chunk: usize,
}

impl Head {
    /// Takes the buffers `final.…` and `head.…` for `rows` rows.
    pub fn take(arena: &mut Arena, rows: usize, config: &ModelConfig) -> Outcome<Head> {
        let sizes = Sizes::of(config);
        let chunk = head_rows(config.vocab, rows as u64) as usize;
        Ok(Head {
            norm: Rows::take(arena, "final.norm", rows, sizes.hidden)?,
            rstd: Rows::take(arena, "final.rstd", rows, 1)?,
            logits: Rows::take(arena, "head.logits", chunk, sizes.vocab)?,
            nll: Rows::take(arena, "head.nll", rows, 1)?,
            loss: arena.take("head.loss_part", 1)?,
            chunk,
        })
    }

    /// Final norm of `x_ND`.
    pub fn normalise(&self, pass: &Pass<'_>, decoder: &Decoder, x: &Buffer) {
        let n = pass.places();
        let (norm, rstd) = (self.norm.first(n), self.rstd.first(n));
        rms_norm::forward(pass.stream, &norm, &rstd, x, &decoder.norm.weight, pass.sizes.eps);
    }

    /// Σ nll of the micro-batch into `self.loss`.
    pub fn loss(&self, pass: &Pass<'_>, decoder: &Decoder, targets: &Rows) {
        for rows in self.chunks(0..pass.places()) {
            let logits = self.logits(pass, decoder, rows.clone());
            cross_entropy::forward(pass.stream, &self.nll.some(rows.clone()), &logits, &targets.some(rows));
        }
        self.sum(pass);
    }

    /// As [`Head::loss`]; `work.dx` becomes the gradient of `scale` × Σ nll with respect to `x_ND`, and the gradients of
    /// head and final norm grow, where these move.
    pub fn loss_backward(
        &self,
        pass: &Pass<'_>,
        decoder: &Decoder,
        targets: &Rows,
        x: &Buffer,
        scale: f32,
        work: &Work,
    ) {
        for rows in self.chunks(0..pass.places()) {
            let logits = self.logits(pass, decoder, rows.clone());
            let nll = self.nll.some(rows.clone());
            cross_entropy::forward_backward(pass.stream, &nll, &logits, &targets.some(rows.clone()), scale);
            self.logits_backward(pass, decoder, rows, &logits, work);
        }
        self.sum(pass);
        let n = pass.places();
        let rstd = self.rstd.first(n);
        let saved = rms_norm::Saved { x, weight: &decoder.norm.weight, rstd: &rstd };
        let (dx, dnorm) = (work.dx.first(n), work.dnorm.first(n));
        rms_norm::backward(pass.stream, &dx, decoder.norm.gradient.as_ref(), saved, &dnorm, false);
    }

    /// Logits of some rows, at most a chunk: `norm W_headᵀ`.
    pub fn logits(&self, pass: &Pass<'_>, decoder: &Decoder, rows: Range<usize>) -> Buffer {
        let shape = Shape { m: rows.len(), n: pass.sizes.vocab, k: pass.sizes.hidden };
        let logits = self.logits.first(rows.len());
        matmul::nt(pass.stream, &logits, &self.norm.some(rows), &decoder.head.weight, shape, 1.0, 0.0);
        logits
    }

    /// `rows` cut into chunks.
    pub fn chunks(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (end, chunk) = (rows.end, self.chunk);
        rows.step_by(chunk).map(move |start| start..(start + chunk).min(end))
    }

    fn logits_backward(&self, pass: &Pass<'_>, decoder: &Decoder, rows: Range<usize>, dlogits: &Buffer, work: &Work) {
        let (m, d, v) = (rows.len(), pass.sizes.hidden, pass.sizes.vocab);
        let dnorm = work.dnorm.some(rows.clone());
        matmul::nn(pass.stream, &dnorm, dlogits, &decoder.head.weight, Shape { m, n: d, k: v }, 1.0, 0.0);
        if let Some(dw) = &decoder.head.gradient {
            matmul::tn(pass.stream, dw, dlogits, &self.norm.some(rows), Shape { m: v, n: d, k: m }, 1.0, 1.0);
        }
    }

    fn sum(&self, pass: &Pass<'_>) {
        reduce::sum(pass.stream, &self.loss, &self.nll.first(pass.places()));
    }
}
