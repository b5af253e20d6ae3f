//! The textbook: what stays is divided by the chance of staying.

pub(super) fn forward(x: &[f64], stays: &[bool], rate: f64) -> Vec<f64> {
    x.iter().zip(stays).map(|(x, stays)| if *stays { x / (1.0 - rate) } else { 0.0 }).collect()
}
