//! Both passes on odd shapes.

use super::{Saved, backward, forward, reference};
use crate::testing::{close, every_backend, gradient, inner, uniform, wide};

const EPS: f32 = 1e-5;

#[test]
fn both_passes_agree_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        for (n, d) in [(1, 1), (3, 7), (17, 33), (130, 64), (65, 200), (0, 4)] {
            let (x, w, dout) = (uniform(n * d, 1), uniform(d, 2), uniform(n * d, 3));
            let results = backends.agree(|on| {
                let (x, w, dout) = (on.of(&x), on.of(&w), on.of(&dout));
                let (out, rstd) = (on.empty(n * d), on.empty(n));
                forward(&on.stream, &out, &rstd, &x, &w, EPS);
                let saved = Saved { x: &x, weight: &w, rstd: &rstd };
                let (dx, added, dw) = (on.empty(n * d), on.of(&vec![1.0; n * d]), on.of(&vec![1.0; d]));
                backward(&on.stream, &dx, Some(&dw), saved, &dout, false);
                backward(&on.stream, &added, None, saved, &dout, true);
                on.read(&[&out, &rstd, &dx, &added, &dw])
            });
            let (x, w, dout) = (wide(&x), wide(&w), wide(&dout));
            let (out, rstd) = reference::forward(&x, &w, f64::from(EPS));
            let (dx, dw) = reference::backward(&x, &w, f64::from(EPS), &dout);
            let one_more = |x: &[f64]| x.iter().map(|x| x + 1.0).collect::<Vec<_>>();
            let wanted = [out, rstd, dx.clone(), one_more(&dx), one_more(&dw)];
            for (name, (got, wanted)) in
                ["out", "rstd", "dx", "dx added", "dweight"].iter().zip(results.iter().zip(&wanted))
            {
                close(&format!("{name} of {n} x {d}"), got, wanted, 2e-5);
            }
        }
    }
}

#[test]
fn the_reference_gradients_are_those_of_the_forward_pass() {
    let [x, w, dout] = [(12, 1), (4, 2), (12, 3)].map(|(len, seed)| wide(&uniform(len, seed)));
    let (dx, dw) = reference::backward(&x, &w, 1e-5, &dout);
    gradient("dx", &x, &dx, |x| inner(&reference::forward(x, &w, 1e-5).0, &dout));
    gradient("dweight", &w, &dw, |w| inner(&reference::forward(&x, w, 1e-5).0, &dout));
}

#[test]
fn a_row_of_zeros_stays_finite_and_a_bad_number_shows() {
    for backends in &every_backend() {
        let results = backends.agree(|on| {
            let x = [0.0, 0.0, f32::NAN, 1.0, f32::INFINITY, 1.0];
            let out = on.empty(6);
            forward(&on.stream, &out, &on.empty(3), &on.of(&x), &on.of(&[1.0, 1.0]), EPS);
            on.read(&[&out])
        });
        assert_eq!(results[0][..2], [0.0, 0.0]);
        assert!(results[0][2..5].iter().all(|x| x.is_nan()), "{results:?}");
    }
}
