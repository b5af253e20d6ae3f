//! Lengths around a piece's, slices, and the two gradients that these operations are.

use super::{add, axpy, copy, fill, reference, scale};
use crate::simd::PIECE;
use crate::testing::{close, every_backend, gradient, inner, uniform, wide};

#[test]
fn every_operation_agrees_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        for len in [0, 1, 9, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7, 300_001] {
            let (x, y) = (uniform(len, 1), uniform(len, 2));
            let results = backends.agree(|on| {
                let (from, s) = (on.of(&x), &on.stream);
                let [added, moved, scaled, copied, filled] = [&y, &y, &x, &y, &y].map(|values| on.of(values));
                add(s, &added, &from);
                axpy(s, &moved, -0.5, &from);
                scale(s, &scaled, 3.0);
                copy(s, &copied, &from);
                fill(s, &filled, 7.0);
                on.read(&[&added, &moved, &scaled, &copied, &filled])
            });
            let (x, y) = (wide(&x), wide(&y));
            close("add", &results[0], &reference::axpy(&y, 1.0, &x), 1e-6);
            close("axpy", &results[1], &reference::axpy(&y, -0.5, &x), 1e-6);
            close("scale", &results[2], &reference::axpy(&x, 2.0, &x), 1e-6);
            close("copy", &results[3], &x, 0.0);
            close("fill", &results[4], &vec![7.0; len], 0.0);
        }
    }
}

/// Backward of `y + alpha · x`: the incoming gradient itself, and it times alpha.
#[test]
fn scale_and_copy_are_the_gradients_of_axpy() {
    let [x, y, dout] = [1, 2, 3].map(|seed| wide(&uniform(5, seed)));
    let dx: Vec<f64> = dout.iter().map(|d| 0.3 * d).collect();
    gradient("dx", &x, &dx, |x| inner(&reference::axpy(&y, 0.3, x), &dout));
    gradient("dy", &y, &dout, |y| inner(&reference::axpy(y, 0.3, &x), &dout));
}

#[test]
fn a_slice_is_a_view_and_neighbours_stay() {
    for backends in &every_backend() {
        let results = backends.agree(|on| {
            let x = on.of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
            fill(&on.stream, &x.slice(1..4).slice(1..2), 9.0);
            copy(&on.stream, &x.slice(4..5), &x.slice(0..1));
            on.read(&[&x])
        });
        assert_eq!(results[0], [1.0, 2.0, 9.0, 4.0, 1.0]);
    }
}

#[test]
#[should_panic(expected = "overlaps")]
fn writing_what_is_also_read_is_refused() {
    for backends in &every_backend() {
        backends.agree(|on| {
            let x = on.zeros(8);
            add(&on.stream, &x.slice(0..4), &x.slice(3..7));
            vec![]
        });
    }
}
