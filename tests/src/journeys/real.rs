//! A real model and real data: SmolLM2-135M-Instruct, tuned on alpaca rows with an adapter. Two steps on every change, thirty
//! in the soak. Prints "skipped" where the model (`scripts/smollm2`) or the data (`$ANNEAL_TEST_DATA`) is not there.

use super::lab::{Lab, events, words};
use std::path::{Path, PathBuf};

/// The model's GGUF file (or a folder made of it), or why there is none.
pub fn model() -> Result<PathBuf, String> {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
    let model = std::env::var_os("ANNEAL_SMOLLM2").map_or(made, PathBuf::from);
    if model.is_file() || model.join("model.safetensors").exists() {
        Ok(model)
    } else {
        Err(format!("no SmolLM2 in {}", model.display()))
    }
}

/// A file of the test data that does not ship.
pub fn data(name: &str) -> Result<PathBuf, String> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden/data");
    let path = std::env::var_os("ANNEAL_TEST_DATA").map_or(beside, PathBuf::from).join(name);
    if path.exists() { Ok(path) } else { Err(format!("no {}", path.display())) }
}

#[test]
fn smollm2_learns_from_alpaca_rows_through_the_command_line() {
    let (model, data) = match (model(), data("llama_factory/alpaca_en_demo.json")) {
        (Ok(model), Ok(data)) => (model, data),
        (Err(why), _) | (_, Err(why)) => return println!("skipped: {why}"),
    };
    let lab = Lab::new();
    let soak = std::env::var_os("ANNEAL_SOAK").is_some();
    let (steps, evaluation, every) = if soak { (30, 0.02, 10) } else { (2, 0.0, 0) };
    let job = lab.write(
        "job.toml",
        &format!(
            "stage = \"sft\"\n[model]\npath = {model:?}\n[model.adapter]\nkind = \"lora\"\nrank = 16\n[data]\ntrain = [{data:?}]\n\
             evaluation = {evaluation}\nmax_length = 256\n[run]\nsteps = {steps}\nglobal_batch = 4\nevaluate_every = {every}\n"
        ),
    );
    let output = lab.run(&["train", job.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    let seen = events(&output);
    let of = |kind: &str, key: &str| -> Vec<f64> {
        seen.iter().filter(|e| e["event"] == kind).map(|e| e[key].as_f64().unwrap()).collect()
    };
    let losses = of("step", "loss");
    assert_eq!(losses.len(), steps);
    assert!(losses[0] > 0.5 && losses[0] < 3.0, "an instruct model's first loss on chat answers: {losses:?}");
    println!("losses {losses:?}, tokens/s {:?}", of("step", "tokens_per_second"));
    if soak {
        let evaluations = of("evaluation", "loss");
        assert!(evaluations.last() < evaluations.first(), "{evaluations:?}");
    }
    let id = seen.last().unwrap()["job"].as_str().unwrap();
    assert!(lab.checkpoint(id).join("adapter_model.safetensors").exists());
}
