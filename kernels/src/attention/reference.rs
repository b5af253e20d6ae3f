//! The textbook: all scores of a row, softmax over the visible ones.

use super::Shape;

/// Probabilities of one query of one head over all positions of its row.
fn probabilities(q: &[f64], k: &[f64], starts: &[u32], shape: Shape, [n, h]: [usize; 2]) -> Vec<f64> {
    let Shape { length, head_dim: e, heads, kv_heads, scale, .. } = shape;
    let (row, t, kh) = (n / length * length, n % length, h / (heads / kv_heads));
    let score = |j: usize| -> f64 {
        let visible = starts[n] as usize <= j && j <= t;
        let dot: f64 = (0..e).map(|i| q[(n * heads + h) * e + i] * k[((row + j) * kv_heads + kh) * e + i]).sum();
        if visible { dot * f64::from(scale) } else { f64::NEG_INFINITY }
    };
    let scores: Vec<f64> = (0..length).map(score).collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
    scores.iter().map(|s| (s - max).exp() / sum).collect()
}

pub(super) fn forward(q: &[f64], k: &[f64], v: &[f64], starts: &[u32], shape: Shape) -> Vec<f64> {
    let Shape { rows, length, head_dim: e, heads, kv_heads, .. } = shape;
    let mut out = vec![0.0; q.len()];
    for at in 0..rows * length * heads {
        let (n, h) = (at / heads, at % heads);
        let (row, kh) = (n / length * length, h / (heads / kv_heads));
        for (j, p) in probabilities(q, k, starts, shape, [n, h]).iter().enumerate() {
            (0..e).for_each(|i| out[at * e + i] += p * v[((row + j) * kv_heads + kh) * e + i]);
        }
    }
    out
}

/// dq, dk, dv.
pub(super) fn backward(
    [q, k, v]: [&[f64]; 3],
    starts: &[u32],
    dout: &[f64],
    shape: Shape,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let Shape { rows, length, head_dim: e, heads, kv_heads, scale } = shape;
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    for at in 0..rows * length * heads {
        let (n, h) = (at / heads, at % heads);
        let (row, kh) = (n / length * length, h / (heads / kv_heads));
        let p = probabilities(q, k, starts, shape, [n, h]);
        let key = |j: usize, i: usize| ((row + j) * kv_heads + kh) * e + i;
        let dp: Vec<f64> = (0..length).map(|j| (0..e).map(|i| dout[at * e + i] * v[key(j, i)]).sum()).collect();
        let delta: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
        for j in 0..length {
            let ds = p[j] * (dp[j] - delta) * f64::from(scale);
            for i in 0..e {
                dq[at * e + i] += ds * k[key(j, i)];
                dk[key(j, i)] += ds * q[at * e + i];
                dv[key(j, i)] += p[j] * dout[at * e + i];
            }
        }
    }
    (dq, dk, dv)
}
