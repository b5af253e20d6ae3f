//! Loss and gradient, ignored targets, large logits, targets that do not exist.

use super::{IGNORE, forward, forward_backward, reference};
use crate::testing::{close, every_backend, gradient, integers, uniform, wide};

#[test]
fn loss_and_gradient_agree_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        for (n, v) in [(1, 1), (3, 7), (10, 33), (5, 5000), (2, 49_152)] {
            let logits: Vec<f32> = uniform(n * v, 1).iter().map(|x| 8.0 * x).collect();
            let mut targets = integers(n, v as u32, 2);
            targets[n / 2] = if n > 1 { IGNORE } else { 0 };
            let results = backends.agree(|on| {
                let (logits, targets) = (on.of(&logits), on.of(&targets));
                let (alone, nll) = (on.empty(n), on.empty(n));
                forward(&on.stream, &alone, &logits, &targets);
                forward_backward(&on.stream, &nll, &logits, &targets, 0.25);
                on.read(&[&alone, &nll, &logits])
            });
            let wanted = reference::forward(&wide(&logits), &targets, v);
            close("nll alone", &results[0], &wanted, 1e-6);
            close("nll", &results[1], &wanted, 1e-6);
            close("dlogits", &results[2], &reference::backward(&wide(&logits), &targets, v, 0.25), 1e-6);
        }
    }
}

#[test]
fn the_reference_gradient_is_that_of_the_loss() {
    let (logits, targets) = (wide(&uniform(3 * 5, 1)), [4, IGNORE, 0]);
    let dlogits = reference::backward(&logits, &targets, 5, 0.5);
    gradient("dlogits", &logits, &dlogits, |x| 0.5 * reference::forward(x, &targets, 5).iter().sum::<f64>());
}

#[test]
fn large_logits_neither_overflow_nor_lose_the_loss() {
    for backends in &every_backend() {
        let results = backends.agree(|on| {
            let (nll, logits) = (on.empty(2), on.of(&[1e4, 0.0, -1e4, -3e38, 3e38, 0.0]));
            forward_backward(&on.stream, &nll, &logits, &on.of(&[1, 1]), 1.0);
            on.read(&[&nll, &logits])
        });
        assert_eq!(results[0], [1e4, 0.0]);
        assert_eq!(results[1], [1.0, -1.0, 0.0, 0.0, 0.0, 0.0]);
    }
}

#[test]
fn a_bad_logit_and_a_target_outside_show_as_not_a_number() {
    for backends in &every_backend() {
        let results = backends.agree(|on| {
            let (nll, alone) = (on.empty(4), on.empty(4));
            let logits = on.of(&[f32::NAN, 0.0, f32::INFINITY, 0.0, 0.0, 0.0, f32::NAN, 0.0]);
            let targets = on.of(&[1, 1, 2, IGNORE]);
            forward(&on.stream, &alone, &logits, &targets);
            forward_backward(&on.stream, &nll, &logits, &targets, 1.0);
            on.read(&[&nll, &alone, &logits])
        });
        for nll in &results[..2] {
            assert!(nll[..3].iter().all(|x| x.is_nan()) && nll[3] == 0.0, "{results:?}");
        }
        assert!(results[2][0].is_nan() && results[2][3].is_nan() && results[2][4].is_nan(), "{results:?}");
        assert_eq!(results[2][6..], [0.0, 0.0]);
    }
}
