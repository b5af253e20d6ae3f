//! The generator against its reference, and the numbers against the distribution they claim.

use super::{Draw, normal, reference};
use crate::testing::{Backends, every_backend, integers};

const DRAW: Draw = Draw { seed: 5, purpose: 1, step: 0 };

fn numbers(backends: &Backends, len: usize, draw: Draw) -> Vec<f32> {
    backends
        .agree(|on| {
            let x = on.empty(len);
            normal(&on.stream, &x, 0.0, 1.0, draw);
            on.read(&[&x])
        })
        .remove(0)
}

#[test]
fn eight_counters_side_by_side_are_eight_single_ones() {
    for seed in 0..50 {
        let words = integers(6, u32::MAX, seed);
        let together = super::philox([words[0], words[1]], words[2], [words[3], words[4], words[5]]);
        for l in 0..8 {
            let counter = [words[2].wrapping_add(l as u32), words[3], words[4], words[5]];
            assert_eq!(together.map(|word| word[l]), reference::philox([words[0], words[1]], counter));
        }
    }
}

/// Kolmogorov and Smirnov's distance; 1.95 / √n is passed by chance once in a thousand seeds, and this seed is fixed.
#[test]
fn the_numbers_are_normally_distributed() {
    for backends in &every_backend() {
        let mut x = numbers(backends, 20_000, DRAW);
        x.sort_by(f32::total_cmp);
        let n = x.len() as f64;
        let distance = |(i, x): (usize, &f32)| (reference::normal_below(f64::from(*x)) - (i as f64 + 0.5) / n).abs();
        let worst = x.iter().enumerate().map(distance).fold(0.0, f64::max);
        assert!(worst < 1.95 / n.sqrt(), "{worst}");
    }
}

#[test]
fn an_element_depends_on_its_place_alone() {
    for backends in &every_backend() {
        let (long, short) = (numbers(backends, 10_001, DRAW), numbers(backends, 33, DRAW));
        assert_eq!(long[..33], short);
        assert_ne!(numbers(backends, 33, Draw { step: 1, ..DRAW }), short);
    }
}

#[test]
fn mean_and_deviation_move_and_stretch() {
    for backends in &every_backend() {
        let x = backends.agree(|on| {
            let x = on.empty(5000);
            normal(&on.stream, &x, 3.0, 0.02, DRAW);
            on.read(&[&x])
        });
        let mean = x[0].iter().map(|x| f64::from(*x)).sum::<f64>() / 5000.0;
        let variance = x[0].iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / 5000.0;
        assert!((mean - 3.0).abs() < 1e-3 && (variance.sqrt() - 0.02).abs() < 1e-3, "{mean} {variance}");
    }
}

/// The same integers everywhere; logarithms and sines may differ in the last bits of f64, the numbers in the last of f32.
#[test]
fn every_backend_draws_the_same_numbers() {
    let all: Vec<Vec<f32>> = every_backend().iter().map(|backends| numbers(backends, 70_001, DRAW)).collect();
    let near = |a: &f32, b: &f32| (a - b).abs() <= 2.0 * f32::EPSILON * a.abs();
    assert!(all.iter().all(|x| x.iter().zip(&all[0]).all(|(a, b)| near(a, b))));
}
