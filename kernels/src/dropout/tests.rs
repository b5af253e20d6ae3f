//! The share that stays, the same choice in both passes, and no dependence on the batch's layout.

use super::{Dropout, backward, forward, reference};
use crate::random::Draw;
use crate::testing::{Backends, close, every_backend, gradient, inner, uniform, wide};

const DRAW: Draw = Draw { seed: 11, purpose: 4, step: 9 };

/// Results of both passes; the backward pass adds to ones.
fn run(backends: &Backends, x: &[f32], dropout: Dropout) -> Vec<Vec<f32>> {
    backends.agree(|on| {
        let (from, out, dx) = (on.of(x), on.empty(x.len()), on.of(&vec![1.0; x.len()]));
        forward(&on.stream, &out, &from, dropout);
        backward(&on.stream, &dx, &from, dropout);
        on.read(&[&out, &dx])
    })
}

#[test]
fn both_passes_make_the_same_choice_and_agree_with_the_reference() {
    for backends in &every_backend() {
        for (rows, length, width) in [(1, 1, 1), (2, 3, 5), (3, 20, 33), (2, 17, 130), (0, 3, 4)] {
            let dropout = Dropout { rate: 0.3, draw: DRAW, first_sample: 1000, length, width };
            let x: Vec<f32> = uniform(rows * length * width, 1).iter().map(|x| x + 2.0).collect();
            let results = run(backends, &x, dropout);
            let stays: Vec<bool> = results[0].iter().map(|x| *x != 0.0).collect();
            let wanted = reference::forward(&wide(&x), &stays, 0.3);
            close("out", &results[0], &wanted, 1e-6);
            close("dx", &results[1], &wanted.iter().map(|x| x + 1.0).collect::<Vec<_>>(), 1e-6);
        }
    }
}

#[test]
fn the_gradient_is_that_of_the_forward_pass() {
    let ([x, dout], stays) = ([1, 2].map(|seed| wide(&uniform(4, seed))), [true, false, true, true]);
    let dx = reference::forward(&dout, &stays, 0.4);
    gradient("dx", &x, &dx, |x| inner(&reference::forward(x, &stays, 0.4), &dout));
}

#[test]
fn the_share_that_stays_is_the_one_asked_for() {
    for backends in &every_backend() {
        for rate in [0.0, 0.05, 0.5, 0.9] {
            let dropout = Dropout { rate, draw: DRAW, first_sample: 0, length: 50, width: 100 };
            let stay =
                run(backends, &vec![1.0; 20_000], dropout)[0].iter().filter(|x| **x != 0.0).count() as f32 / 20_000.0;
            assert!((stay - (1.0 - rate)).abs() < 0.015, "{stay} of {rate}");
        }
    }
}

#[test]
fn a_sample_keeps_its_choice_wherever_it_stands_in_a_batch() {
    for backends in &every_backend() {
        let x = uniform(4 * 7 * 12, 1);
        let dropout = Dropout { rate: 0.5, draw: DRAW, first_sample: 40, length: 7, width: 12 };
        let together = run(backends, &x, dropout);
        let later = run(backends, &x[2 * 84..], Dropout { first_sample: 42, ..dropout });
        assert_eq!(together[0][2 * 84..], later[0]);
        assert_ne!(run(backends, &x, Dropout { draw: Draw { step: 10, ..DRAW }, ..dropout })[0], together[0]);
    }
}

/// The same integers decide everywhere, so what is dropped does not depend on where a run goes on.
#[test]
fn every_backend_drops_the_same_elements() {
    let x = uniform(3 * 20 * 70, 1);
    let dropout = Dropout { rate: 0.4, draw: DRAW, first_sample: (7 << 32) + 5, length: 20, width: 70 };
    let all: Vec<Vec<f32>> = every_backend().iter().map(|backends| run(backends, &x, dropout).remove(0)).collect();
    assert!(all.iter().all(|out| out == &all[0]));
}
