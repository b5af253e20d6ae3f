//! Turning, turning back, and far positions.

use super::{backward, forward, frequencies, reference};
use crate::testing::{close, every_backend, gradient, inner, integers, uniform, wide};

#[test]
fn both_passes_agree_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        for (n, heads, dim, scaling) in
            [(1, 1, 2, 1.0), (5, 3, 6, 1.138_629_4), (33, 2, 64, 0.75), (19, 5, 10, 1.0), (0, 2, 4, 2.0)]
        {
            let (x, positions, inv_freq) =
                (uniform(n * heads * dim, 1), integers(n, 300, 2), frequencies(dim, 10_000.0));
            let results = backends.agree(|on| {
                let (positions, inv_freq) = (on.of(&positions), on.of(&inv_freq));
                let (turned, back) = (on.of(&x), on.of(&x));
                forward(&on.stream, &turned, &positions, &inv_freq, scaling);
                backward(&on.stream, &back, &positions, &inv_freq, scaling);
                on.read(&[&turned, &back])
            });
            for (got, sign) in results.iter().zip([1.0, -1.0]) {
                let scaling = f64::from(scaling);
                let wanted = reference::turn(&wide(&x), &positions, &wide(&inv_freq), heads, sign, scaling);
                close("turned", got, &wanted, 2e-5);
            }
        }
    }
}

#[test]
fn the_reference_gradient_is_that_of_the_forward_pass() {
    let ([x, dout], positions) = ([1, 2].map(|seed| wide(&uniform(2 * 2 * 4, seed))), [3, 11]);
    let inv_freq = wide(&frequencies(4, 100.0));
    let dx = reference::turn(&dout, &positions, &inv_freq, 2, -1.0, 1.3);
    gradient("dx", &x, &dx, |x| inner(&reference::turn(x, &positions, &inv_freq, 2, 1.0, 1.3), &dout));
}

#[test]
fn turning_keeps_lengths_at_positions_far_beyond_any_context() {
    for backends in &every_backend() {
        let results = backends.agree(|on| {
            let x = on.of(&[3.0, 0.0, 4.0, 0.0]);
            forward(&on.stream, &x, &on.of(&[1_000_000u32]), &on.of(&frequencies(4, 500_000.0)), 1.0);
            on.read(&[&x])
        });
        let length = results[0].iter().map(|x| x * x).sum::<f32>();
        assert!((length - 25.0).abs() < 1e-4, "{results:?}");
    }
}
