//! Every orientation on shapes with every kind of edge.

use super::{Orientation, Shape, nt, product, reference};
use crate::testing::{close, every_backend, gradient, inner, uniform, wide};

const SHAPES: [[usize; 3]; 12] = [
    [1, 1, 1],
    [1, 70, 129],
    [4, 33, 65],
    [5, 16, 64],
    [6, 17, 31],
    [7, 130, 3],
    [97, 50, 321],
    [200, 48, 96],
    [16, 300, 700],
    [3, 5, 0],
    [0, 4, 4],
    [13, 4100, 5],
];

#[test]
fn products_agree_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        // A library may add along k in one chain, where the CPU adds blocks.
        let tolerance = if backends.is_cuda() { 3e-5 } else { 1e-5 };
        for [m, n, k] in SHAPES {
            let shape = Shape { m, n, k };
            let (a, b, old) = (uniform(m * k, 1), uniform(n * k, 2), uniform(m * n, 3));
            for orientation in [Orientation::Nt, Orientation::Nn, Orientation::Tn] {
                let results = backends.agree(|on| {
                    let (written, added) = (on.empty(m * n), on.of(&old));
                    let (a, b) = (on.of(&a), on.of(&b));
                    product(&on.stream, orientation, &written, [&a, &b], shape, [1.0, 0.0]);
                    product(&on.stream, orientation, &added, [&a, &b], shape, [0.5, 2.0]);
                    on.read(&[&written, &added])
                });
                let wanted = reference::product(orientation, &wide(&a), &wide(&b), shape);
                let added: Vec<f64> = wanted.iter().zip(&old).map(|(x, old)| 0.5 * x + 2.0 * f64::from(*old)).collect();
                close(&format!("{orientation:?} {shape:?}"), &results[0], &wanted, tolerance);
                close(&format!("{orientation:?} {shape:?} added"), &results[1], &added, tolerance);
            }
        }
    }
}

/// The other two orientations are the gradients of the first: `dx = dy w`, `dw = dyᵀ x`.
#[test]
fn the_orientations_are_each_others_gradients() {
    let (n, f, d) = (3, 4, 5);
    let [x, w, dy] = [(n * d, 1), (f * d, 2), (n * f, 3)].map(|(len, seed)| wide(&uniform(len, seed)));
    let forward = |x: &[f64], w: &[f64]| reference::product(Orientation::Nt, x, w, Shape { m: n, n: f, k: d });
    let dx = reference::product(Orientation::Nn, &dy, &w, Shape { m: n, n: d, k: f });
    let dw = reference::product(Orientation::Tn, &dy, &x, Shape { m: f, n: d, k: n });
    gradient("dx", &x, &dx, |x| inner(&forward(x, &w), &dy));
    gradient("dw", &w, &dw, |w| inner(&forward(&x, w), &dy));
}

/// Matrices that begin anywhere in a buffer, and neighbours that stay.
#[test]
fn views_are_multiplied_where_they_lie() {
    let shape = Shape { m: 5, n: 6, k: 7 };
    let (a, b) = (uniform(40, 1), uniform(50, 2));
    for backends in &every_backend() {
        for orientation in [Orientation::Nt, Orientation::Nn, Orientation::Tn] {
            let results = backends.agree(|on| {
                let (out, a, b) = (on.of(&[9.0; 40]), on.of(&a), on.of(&b));
                let (view, operands) = (out.slice(3..33), [&a.slice(1..36), &b.slice(5..47)]);
                product(&on.stream, orientation, &view, operands, shape, [1.0, 0.0]);
                on.read(&[&out])
            });
            let wanted = reference::product(orientation, &wide(&a[1..36]), &wide(&b[5..47]), shape);
            close("out", &results[0][3..33], &wanted, 1e-5);
            assert!(results[0][..3].iter().chain(&results[0][33..]).all(|x| *x == 9.0), "{results:?}");
        }
    }
}

#[test]
fn one_bad_number_shows_in_its_whole_row() {
    for backends in &every_backend() {
        let results = backends.agree(|on| {
            let mut a = uniform(20 * 30, 1);
            a[7 * 30 + 4] = f32::INFINITY;
            a[9 * 30] = f32::NAN;
            let out = on.empty(20 * 40);
            nt(&on.stream, &out, &on.of(&a), &on.of(&uniform(40 * 30, 2)), Shape { m: 20, n: 40, k: 30 }, 1.0, 0.0);
            on.read(&[&out])
        });
        for (i, row) in results[0].chunks(40).enumerate() {
            assert!(row.iter().all(|x| x.is_finite() != (i == 7 || i == 9)), "row {i}: {row:?}");
        }
    }
}

#[test]
#[should_panic(expected = "matmul: `b` has 5 elements, the shape is [2, 3]")]
fn a_wrong_shape_names_both_sides() {
    for backends in &every_backend() {
        backends.agree(|on| {
            nt(&on.stream, &on.zeros(4), &on.zeros(6), &on.zeros(5), Shape { m: 2, n: 2, k: 3 }, 1.0, 0.0);
            vec![]
        });
    }
}
