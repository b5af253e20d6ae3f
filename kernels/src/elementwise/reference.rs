//! The textbook.

pub(super) fn axpy(y: &[f64], alpha: f64, x: &[f64]) -> Vec<f64> {
    y.iter().zip(x).map(|(y, x)| y + alpha * x).collect()
}
