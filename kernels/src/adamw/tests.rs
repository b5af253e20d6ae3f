//! One step against the textbook, and twenty against recorded runs of `torch.optim.AdamW`.

use super::{State, Step, reference, step};
use crate::testing::{Backends, close, every_backend, uniform, wide};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::PathBuf;

const STEP: Step =
    Step { learning_rate: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, step: 3, gradient_scale: 0.25 };

#[test]
fn one_step_agrees_with_the_reference_on_every_backend() {
    for backends in &every_backend() {
        for len in [1, 33, 40_000] {
            let [p, m, g] = [1, 2, 3].map(|seed| uniform(len, seed));
            let v: Vec<f32> = uniform(len, 4).iter().map(|x| x * x).collect();
            let results = backends.agree(|on| {
                let [p, m, v] = [&p, &m, &v].map(|x| on.of(x));
                step(&on.stream, State { p: &p, m: &m, v: &v }, &on.of(&g), STEP);
                on.read(&[&p, &m, &v])
            });
            let wanted = reference::step([&wide(&p), &wide(&m), &wide(&v)], &wide(&g), STEP);
            results.iter().zip(&wanted).for_each(|(got, wanted)| close("state", got, wanted, 1e-6));
        }
    }
}

#[test]
fn a_bad_gradient_shows_in_the_parameter() {
    for backends in &every_backend() {
        let results = backends.agree(|on| {
            let [p, m, v] = [1.0, 0.0, 0.0].map(|x| on.of(&[x, x]));
            step(&on.stream, State { p: &p, m: &m, v: &v }, &on.of(&[f32::NAN, 1.0]), STEP);
            on.read(&[&p])
        });
        assert!(results[0][0].is_nan() && results[0][1].is_finite(), "{results:?}");
    }
}

#[test]
fn twenty_steps_agree_with_torch() {
    for backends in &every_backend() {
        let manifest: Value = serde_json::from_slice(&golden("manifest.json")).unwrap();
        for name in ["adamw_default", "adamw_llm", "adamw_nowd_bigeps", "adamw_lr_schedule"] {
            let how = &manifest["optimizers"][name];
            ["w", "v", "b"].iter().for_each(|tensor| recorded_run(backends, name, tensor, how));
        }
    }
}

fn recorded_run(backends: &Backends, name: &str, tensor: &str, how: &Value) {
    let (problem, run) = (golden("problem.safetensors"), golden(&format!("{name}.safetensors")));
    let (problem, run) = (SafeTensors::deserialize(&problem).unwrap(), SafeTensors::deserialize(&run).unwrap());
    let start = floats(&problem, &format!("init.{tensor}"));
    let gradients = floats(&problem, &format!("grad.{tensor}"));
    let after = floats(&run, &format!("params.{tensor}"));
    let len = start.len();
    let results = backends.agree(|on| {
        let (p, m, v) = (on.of(&start), on.zeros(len), on.zeros(len));
        let mut seen = Vec::new();
        for (i, g) in gradients.chunks(len).enumerate() {
            step(&on.stream, State { p: &p, m: &m, v: &v }, &on.of(g), hyper(how, i));
            seen.extend(on.stream.to_host(&p));
        }
        [vec![seen], on.read(&[&m, &v])].concat()
    });
    let wanted =
        [after, floats(&run, &format!("state.{tensor}.exp_avg")), floats(&run, &format!("state.{tensor}.exp_avg_sq"))];
    for (got, wanted) in results.iter().zip(&wanted) {
        close(&format!("{name} {tensor}"), got, &wide(wanted), 1e-6);
    }
}

fn golden(file: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../tests/golden/optim", file].iter().collect();
    std::fs::read(path).unwrap()
}

fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let bytes = file.tensor(name).unwrap().data().to_vec();
    bytes.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
}

/// The numbers of the i-th step (from 0) as the manifest has them.
fn hyper(how: &Value, i: usize) -> Step {
    let of = |value: &Value| value.as_f64().unwrap();
    let hyper = &how["hyper"];
    let rate = how["lr_per_step"].get(i).unwrap_or(&hyper["lr"]);
    Step {
        learning_rate: of(rate),
        beta1: of(&hyper["betas"][0]),
        beta2: of(&hyper["betas"][1]),
        eps: of(&hyper["eps"]),
        weight_decay: of(&hyper["weight_decay"]),
        step: i as u64 + 1,
        gradient_scale: 1.0,
    }
}
