//! Lengths around the blocks', and numbers that are not finite.

use super::{BLOCK, reference, sum, sum_of_squares};
use crate::testing::{Backends, close, every_backend, gradient, uniform, wide};

fn sums(backends: &Backends, x: &[f32]) -> Vec<f32> {
    backends
        .agree(|on| {
            let (x, out) = (on.of(x), on.empty(2));
            sum(&on.stream, &out.slice(0..1), &x);
            sum_of_squares(&on.stream, &out.slice(1..2), &x);
            on.read(&[&out])
        })
        .remove(0)
}

#[test]
fn both_sums_agree_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        for len in [0, 1, 31, BLOCK, BLOCK + 1, 17 * BLOCK + 5, 40 * BLOCK, 1025 * BLOCK + 5] {
            let x = uniform(len, 1);
            let wanted = [reference::sum(&wide(&x)), reference::sum_of_squares(&wide(&x))];
            close(&format!("sums of {len}"), &sums(backends, &x), &wanted, 1e-5);
        }
    }
}

#[test]
fn the_gradient_of_the_sum_of_squares_is_twice_its_argument() {
    let x = wide(&uniform(6, 1));
    let dx: Vec<f64> = x.iter().map(|x| 2.0 * x).collect();
    gradient("dx", &x, &dx, reference::sum_of_squares);
}

#[test]
fn one_bad_number_among_many_shows() {
    for backends in &every_backend() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
            let mut x = uniform(20 * BLOCK, 1);
            x[7 * BLOCK + 3] = bad;
            assert!(!sums(backends, &x)[1].is_finite(), "{bad}");
        }
    }
}
