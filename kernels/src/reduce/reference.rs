//! The textbook.

pub(super) fn sum(x: &[f64]) -> f64 {
    x.iter().sum()
}

pub(super) fn sum_of_squares(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}
