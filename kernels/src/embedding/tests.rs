//! Looking up and adding back, ids that repeat, ids that do not exist.

use super::{backward, forward, reference};
use crate::testing::{close, every_backend, gradient, inner, integers, uniform, wide};

#[test]
fn both_passes_agree_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        for (v, d, n) in [(1, 1, 1), (5, 3, 40), (50, 65, 130), (7, 200, 3), (3, 4, 0)] {
            let (table, ids, dout) = (uniform(v * d, 1), integers(n, v as u32, 2), uniform(n * d, 3));
            let results = backends.agree(|on| {
                let (out, dtable, ids) =
                    (on.empty(n * d), on.of(&vec![1.0; if n == 0 { 0 } else { v * d }]), on.of(&ids));
                let table = if n == 0 { on.zeros(0) } else { on.of(&table) };
                forward(&on.stream, &out, &table, &ids);
                backward(&on.stream, &dtable, &on.of(&dout), &ids);
                on.read(&[&out, &dtable])
            });
            if n > 0 {
                let added: Vec<f64> = reference::backward(v, &wide(&dout), &ids, d).iter().map(|x| 1.0 + x).collect();
                close("out", &results[0], &reference::forward(&wide(&table), &ids, d), 0.0);
                close("dtable", &results[1], &added, 1e-5);
            }
        }
    }
}

#[test]
fn the_reference_gradient_is_that_of_the_forward_pass() {
    let (table, dout, ids) = (wide(&uniform(12, 1)), wide(&uniform(15, 2)), [3, 0, 3, 1, 3]);
    let dtable = reference::backward(4, &dout, &ids, 3);
    gradient("dtable", &table, &dtable, |table| inner(&reference::forward(table, &ids, 3), &dout));
}

#[test]
fn an_id_outside_the_table_shows_as_not_a_number() {
    for backends in &every_backend() {
        let results = backends.agree(|on| {
            let (out, dtable, ids) = (on.empty(4), on.zeros(6), on.of(&[2, u32::MAX]));
            forward(&on.stream, &out, &on.of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), &ids);
            backward(&on.stream, &dtable, &on.of(&[1.0; 4]), &ids);
            on.read(&[&out, &dtable])
        });
        assert_eq!(results[0][..2], [5.0, 6.0]);
        assert!(results[0][2..].iter().chain(&results[1]).all(|x| x.is_nan()), "{results:?}");
    }
}
