//! SmolLM2-135M against transformers: logits, a text's loss, the gradients of a chat batch, ten steps of fine-tuning and
//! greedy texts. `$ANNEAL_SMOLLM2` names its GGUF file, or a folder made of it.

use super::*;
use crate::generation::{Generator, Options};
use crate::testing::*;
use formats::model_folder::ModelFolder;
use plan::memory::table;
use protocol::job::OptimizerKind;
use serde_json::Value;
use std::path::PathBuf;

/// The model and its reference values; `None` is said.
fn real_model() -> Option<(ModelFolder, Value)> {
    let Some(folder) = std::env::var_os("ANNEAL_SMOLLM2").map(PathBuf::from) else {
        println!("skipped: $ANNEAL_SMOLLM2 does not name a folder of SmolLM2-135M-Instruct (bf16)");
        return None;
    };
    let text = std::fs::read(golden("realmodel/smollm2_reference.json")).unwrap();
    Some((ModelFolder::open(&folder).unwrap(), serde_json::from_slice(&text).unwrap()))
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    numbers(value).into_iter().map(|n| n as u32).collect()
}

fn all_trained(ids: &[u32]) -> Rows {
    let (trained, segments) = (vec![1; ids.len()], vec![ids.len() as u32]);
    Rows(vec![OwnedRow { tokens: ids.to_vec(), trained, segments }])
}

#[test]
fn smollm2_gives_the_logits_and_the_loss_of_transformers() {
    let Some((folder, reference)) = real_model() else { return };
    let vocab = folder.config().vocab as usize;
    let model = Model::for_inference(&Device::cpu(2), folder.config(), &Method::Full, 1, 192, &folder).unwrap();
    for prompt in reference["prompts"].as_array().unwrap() {
        let rows = all_trained(&ids(&prompt["ids"]));
        let logits = model.logits(&rows.batch()).unwrap();
        let last = &logits[logits.len() - vocab..];
        for (id, expected) in ids(&prompt["last_logits_top10_ids"]).iter().zip(numbers(&prompt["last_logits_top10"])) {
            let found = f64::from(last[*id as usize]);
            assert!((found - expected).abs() < 1e-3, "{}: logit {id} is {found}, not {expected}", prompt["name"]);
        }
        let mut order: Vec<u32> = (0..vocab as u32).collect();
        order.sort_by(|a, b| last[*b as usize].total_cmp(&last[*a as usize]));
        assert_eq!(order[..10], ids(&prompt["last_logits_top10_ids"]));
    }
    let text = &reference["perplexity"];
    let rows = all_trained(&ids(&text["ids"]));
    let loss = model.evaluate(&rows.batch()).unwrap() / rows.0[0].row().targets() as f64;
    assert!((loss - text["loss"].as_f64().unwrap()).abs() < 1e-4, "loss {loss}");
}

#[test]
fn smollm2_writes_what_transformers_writes() {
    let Some((folder, reference)) = real_model() else { return };
    let mut generator = Generator::new(&Device::cpu(2), folder.config(), &Method::Full, 64, 128, &folder).unwrap();
    for prompt in reference["prompts"].as_array().unwrap() {
        let options = Options { max_tokens: 32, temperature: 0.0, seed: 0, ends: vec![] };
        let (text, _) = generator.write(&ids(&prompt["ids"]), &options, &mut |_| Ok(())).unwrap();
        assert_eq!(text, ids(&prompt["greedy32_ids"]), "{}", prompt["name"]);
    }
}

#[test]
fn smollm2_has_the_gradients_of_torch() {
    let Some((folder, reference)) = real_model() else { return };
    let batch = &reference["sft_batch"];
    let rows = (0..3).map(|r| {
        let part = |name: &str| numbers(&batch[name][r]).into_iter().map(|n| n as i64).collect::<Vec<i64>>();
        let length = part("attention_mask").iter().sum::<i64>() as usize;
        OwnedRow::new(&part("input_ids")[..length], &part("labels")[..length], &[length])
    });
    let rows = Rows(rows.collect());
    let (config, device) = (folder.config(), Device::cpu(2));
    let lines = table(config, &Method::Full, OptimizerKind::Adamw, 3, 66, Recompute::Layers);
    let options = TrainingOptions { recompute: Recompute::Layers, seed: 1 };
    let mut arena = Arena::new(&device, &lines);
    let mut model = Model::for_training(&mut arena, &device, config, &Method::Full, 3 * 66, options, &folder).unwrap();
    let targets = rows.0.iter().map(|r| r.row().targets()).sum();
    assert_eq!(targets, batch["n_target"].as_u64().unwrap());
    model.clear().unwrap();
    model.learn(&rows.batch(), 0, targets).unwrap();
    let measured = model.measure(targets).unwrap();
    assert!((measured.loss - batch["loss"].as_f64().unwrap()).abs() < 1e-4, "{measured:?}");
    let unpadded = without_padding_row(&model, &rows.batch());
    for p in model.parameters() {
        let mut gradient = model.stream().to_host(p.gradient.as_ref().unwrap());
        if p.tensor.name == "model.embed_tokens.weight" {
            gradient = unpadded.clone();
        }
        let norm = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let expected = batch["grad_norm_per_tensor"][&p.tensor.name].as_f64().unwrap();
        assert!((norm / expected - 1.0).abs() < 1e-3, "{}: {norm}, not {expected}", p.tensor.name);
    }
    assert!((measured.grad_norm / batch["grad_global_norm"].as_f64().unwrap() - 1.0).abs() < 1e-3, "{measured:?}");
}

/// The embedding's gradient as torch gives it: `padding_idx` is 2 here, which is also the end of a turn, and torch takes no
/// gradient from where that token is an input. We do, since it is the loss's true gradient; so it is taken out again.
fn without_padding_row(model: &Model, batch: &MicroBatch) -> Vec<f32> {
    let work = &model.training.as_ref().unwrap().work;
    let width = model.config.hidden as usize;
    let dx = model.stream.to_host(&work.dx.first(batch.places()));
    let mut gradient = model.stream.to_host(model.decoder.embedding.gradient.as_ref().unwrap());
    for (place, _) in batch.tokens.iter().enumerate().filter(|(_, token)| **token == 2) {
        let row = gradient[2 * width..3 * width].iter_mut();
        row.zip(&dx[place * width..]).for_each(|(g, d)| *g -= d);
    }
    gradient
}
