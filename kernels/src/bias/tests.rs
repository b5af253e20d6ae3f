//! Both passes on odd shapes.

use super::{backward, forward, reference};
use crate::testing::{close, every_backend, gradient, inner, uniform, wide};

#[test]
fn both_passes_agree_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        for (n, f) in [(1, 1), (3, 7), (17, 33), (64, 64), (130, 65), (65, 200), (513, 96), (0, 4)] {
            let (y, bias, dy) = (uniform(n * f, 1), uniform(f, 2), uniform(n * f, 3));
            let results = backends.agree(|on| {
                let (sum, dbias) = (on.of(&y), on.of(&vec![1.0; f]));
                forward(&on.stream, &sum, &on.of(&bias));
                backward(&on.stream, &dbias, &on.of(&dy));
                on.read(&[&sum, &dbias])
            });
            let dbias: Vec<f64> = reference::backward(&wide(&dy), f).iter().map(|sum| sum + 1.0).collect();
            close(&format!("y of {n} x {f}"), &results[0], &reference::forward(&wide(&y), &wide(&bias)), 1e-6);
            close(&format!("dbias of {n} x {f}"), &results[1], &dbias, 1e-5);
        }
    }
}

#[test]
fn the_reference_gradient_is_that_of_the_forward_pass() {
    let [y, bias, dy] = [(12, 1), (4, 2), (12, 3)].map(|(len, seed)| wide(&uniform(len, seed)));
    gradient("dbias", &bias, &reference::backward(&dy, 4), |bias| inner(&reference::forward(&y, bias), &dy));
}

#[test]
#[should_panic(expected = "bias::forward: `y` has 7 elements")]
fn rows_that_are_not_whole_are_refused() {
    for backends in &every_backend() {
        backends.agree(|on| {
            forward(&on.stream, &on.zeros(7), &on.zeros(3));
            vec![]
        });
    }
}
