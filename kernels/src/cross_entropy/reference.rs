//! The textbook: softmax, and its logarithm at the target.

use super::IGNORE;

pub(super) fn forward(logits: &[f64], targets: &[u32], vocab: usize) -> Vec<f64> {
    let row = |(row, target): (&[f64], &u32)| -> f64 {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        if *target == IGNORE { 0.0 } else { sum.ln() - row[*target as usize] }
    };
    logits.chunks(vocab).zip(targets).map(row).collect()
}

/// dlogits of `scale · Σ nll`.
pub(super) fn backward(logits: &[f64], targets: &[u32], vocab: usize, scale: f64) -> Vec<f64> {
    let mut dlogits = vec![0.0; logits.len()];
    for (i, target) in targets.iter().enumerate().filter(|(_, target)| **target != IGNORE) {
        let row = &logits[i * vocab..(i + 1) * vocab];
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        (0..vocab).for_each(|v| dlogits[i * vocab + v] = scale * row[v].exp() / sum);
        dlogits[i * vocab + *target as usize] -= scale;
    }
    dlogits
}
