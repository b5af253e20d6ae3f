//! The textbook: each pair of a head is a point in the plane, turned by its angle and moved out by the scaling.

/// `sign` is 1 for the forward pass and -1 for its gradient.
pub(super) fn turn(x: &[f64], positions: &[u32], inv_freq: &[f64], heads: usize, sign: f64, scaling: f64) -> Vec<f64> {
    let half = inv_freq.len();
    let mut out = x.to_vec();
    for (head, out) in out.chunks_mut(2 * half).enumerate() {
        for e in 0..half {
            let (sin, cos) = (f64::from(positions[head / heads]) * inv_freq[e]).sin_cos();
            let (a, b) = (out[e], out[e + half]);
            out[e] = scaling * (a * cos - sign * b * sin);
            out[e + half] = scaling * (b * cos + sign * a * sin);
        }
    }
    out
}
