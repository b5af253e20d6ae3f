//! The textbook.

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn forward(gate: &[f64], up: &[f64]) -> Vec<f64> {
    gate.iter().zip(up).map(|(g, u)| g * sigmoid(*g) * u).collect()
}

/// dgate and dup.
pub(super) fn backward(gate: &[f64], up: &[f64], dout: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let dsilu = |g: f64| sigmoid(g) * (1.0 + g * (1.0 - sigmoid(g)));
    let dgate = (0..gate.len()).map(|i| dout[i] * up[i] * dsilu(gate[i])).collect();
    (dgate, (0..gate.len()).map(|i| dout[i] * gate[i] * sigmoid(gate[i])).collect())
}
