//! The textbook: one sum an element.

use super::{Orientation, Shape};

/// `op(a) · op(b)` in f64.
pub(crate) fn product(orientation: Orientation, a: &[f64], b: &[f64], Shape { m, n, k }: Shape) -> Vec<f64> {
    let term = |i: usize, j: usize, p: usize| match orientation {
        Orientation::Nt => a[i * k + p] * b[j * k + p],
        Orientation::Nn => a[i * k + p] * b[p * n + j],
        Orientation::Tn => a[p * m + i] * b[p * n + j],
    };
    (0..m * n).map(|at| (0..k).map(|p| term(at / n, at % n, p)).sum()).collect()
}
