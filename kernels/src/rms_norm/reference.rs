//! The textbook, a row at a time.

pub(super) fn forward(x: &[f64], weight: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>) {
    let width = weight.len();
    let rstd: Vec<f64> =
        x.chunks(width).map(|row| 1.0 / (row.iter().map(|x| x * x).sum::<f64>() / width as f64 + eps).sqrt()).collect();
    let out = (0..x.len()).map(|i| weight[i % width] * x[i] * rstd[i / width]).collect();
    (out, rstd)
}

/// dx and dweight.
pub(super) fn backward(x: &[f64], weight: &[f64], eps: f64, dout: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let width = weight.len();
    let (_, rstd) = forward(x, weight, eps);
    let mut dweight = vec![0.0; width];
    let mut dx = vec![0.0; x.len()];
    for (row, rstd) in rstd.iter().enumerate() {
        let at = |i| row * width + i;
        let mean: f64 = (0..width).map(|i| x[at(i)] * weight[i] * dout[at(i)]).sum::<f64>() / width as f64;
        for i in 0..width {
            dweight[i] += dout[at(i)] * x[at(i)] * rstd;
            dx[at(i)] = rstd * (weight[i] * dout[at(i)] - x[at(i)] * rstd * rstd * mean);
        }
    }
    (dx, dweight)
}
