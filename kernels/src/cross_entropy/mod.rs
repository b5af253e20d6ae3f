//! The loss of a language model: the negative logarithm of the probability that softmax gives the target.
//!
//! Works on a chunk of rows, so that the logits of a whole micro-batch over a large vocabulary are never held at once.

mod cpu;
mod cuda;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::stream::{Arguments, expect};
use crate::{Buffer, Stream};

/// The target of a token that is not learnt: its loss and its gradient are zero.
pub const IGNORE: u32 = u32::MAX;

/// Writes each row's loss `nll_N` for `logits_NV` and `targets_N`. A target outside the vocabulary gives NaN.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn forward(stream: &Stream, nll: &Buffer, logits: &Buffer, targets: &Buffer) {
    let vocab = vocab("cross_entropy::forward", nll, logits, targets);
    let arguments = Arguments { reads: [logits], indices: [targets], writes: [nll] };
    if let Some(gpu) = stream.cuda("cross_entropy::forward", &arguments) {
        return cuda::forward(&gpu, nll, logits, targets, vocab);
    }
    stream.launch("cross_entropy::forward", arguments, move |team, [logits], [targets], [nll]| {
        cpu::forward(team, nll, logits, targets, vocab);
    });
}

/// As [`forward`], and turns `logits_NV` **in place** into the gradient of `scale · Σ nll`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn forward_backward(stream: &Stream, nll: &Buffer, logits: &Buffer, targets: &Buffer, scale: f32) {
    let vocab = vocab("cross_entropy::forward_backward", nll, logits, targets);
    let arguments = Arguments { reads: [], indices: [targets], writes: [nll, logits] };
    if let Some(gpu) = stream.cuda("cross_entropy::forward_backward", &arguments) {
        return cuda::forward_backward(&gpu, nll, logits, targets, vocab, scale);
    }
    stream.launch("cross_entropy::forward_backward", arguments, move |team, [], [targets], [nll, logits]| {
        cpu::forward_backward(team, nll, logits, targets, vocab, scale);
    });
}

#[track_caller]
fn vocab(op: &str, nll: &Buffer, logits: &Buffer, targets: &Buffer) -> usize {
    let vocab = logits.len().checked_div(targets.len()).unwrap_or(0);
    expect(op, "nll", nll, &[targets.len()]);
    expect(op, "logits", logits, &[targets.len(), vocab]);
    vocab
}
