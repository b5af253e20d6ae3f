//! Both passes, and the ends of the range.

use super::{backward, forward, reference};
use crate::testing::{close, every_backend, gradient, inner, uniform, wide};

#[test]
fn both_passes_agree_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        for len in [1, 31, 1000, 40_000] {
            let gate: Vec<f32> = uniform(len, 1).iter().map(|x| 20.0 * x).collect();
            let (up, dout) = (uniform(len, 2), uniform(len, 3));
            let results = backends.agree(|on| {
                let (gate, up, out) = (on.of(&gate), on.of(&up), on.empty(len));
                forward(&on.stream, &out, &gate, &up);
                backward(&on.stream, &gate, &up, &on.of(&dout));
                on.read(&[&out, &gate, &up])
            });
            let (gate, up, dout) = (wide(&gate), wide(&up), wide(&dout));
            let (dgate, dup) = reference::backward(&gate, &up, &dout);
            close("out", &results[0], &reference::forward(&gate, &up), 1e-6);
            close("dgate", &results[1], &dgate, 1e-6);
            close("dup", &results[2], &dup, 1e-6);
        }
    }
}

#[test]
fn the_reference_gradients_are_those_of_the_forward_pass() {
    let [gate, up, dout] = [1, 2, 3].map(|seed| wide(&uniform(9, seed)));
    let (dgate, dup) = reference::backward(&gate, &up, &dout);
    gradient("dgate", &gate, &dgate, |gate| inner(&reference::forward(gate, &up), &dout));
    gradient("dup", &up, &dup, |up| inner(&reference::forward(&gate, up), &dout));
}

#[test]
fn large_gates_saturate_and_bad_numbers_show() {
    for backends in &every_backend() {
        let results = backends.agree(|on| {
            let out = on.empty(4);
            forward(&on.stream, &out, &on.of(&[500.0, -500.0, f32::NAN, f32::INFINITY]), &on.of(&[2.0; 4]));
            on.read(&[&out])
        });
        assert_eq!(results[0][..2], [1000.0, 0.0]);
        assert!(results[0][2..].iter().all(|x| !x.is_finite()), "{results:?}");
    }
}
