//! SmolLM2-135M against transformers: logits, a text's loss, the gradients of a chat batch, ten steps of fine-tuning and
//! greedy texts. `$ANNEAL_SMOLLM2` names its GGUF file, or a folder made of it.

use super::*;
use crate::generation::{Generator, Options};
use crate::rank::Rank;
use crate::step::StepOutcome;
use crate::testing::*;
use formats::dataset;
use formats::model_folder::ModelFolder;
use formats::sample::{Sampler, Settings};
use formats::template::Template;
use formats::tokenizer::Tokenizer;
use plan::memory::table;
use protocol::facts::TensorShape;
use protocol::job::{OptimizerKind, ScheduleKind, Stage, TooLong};
use protocol::plan::{PlannedOptimizer, PlannedSchedule};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The model with its weights rounded to bf16, which is what the reference computed with.
struct Real(ModelFolder);

impl Real {
    fn config(&self) -> &ModelConfig {
        self.0.config()
    }
}

impl WeightSource for Real {
    fn load(&self, tensor: &TensorShape, stream: &Stream, buffer: &Buffer) -> Outcome<()> {
        let mut values = vec![0.0; buffer.len()];
        self.0.read_f32(&tensor.name, &mut values)?;
        values.iter_mut().for_each(|v| *v = half::bf16::from_f32(*v).to_f32());
        stream.copy_from_host(buffer, &values);
        Ok(())
    }
}

/// The model and its reference values; `None` is said.
fn real_model() -> Option<(Real, Value)> {
    let Some(path) = std::env::var_os("ANNEAL_SMOLLM2").map(PathBuf::from) else {
        println!("skipped: $ANNEAL_SMOLLM2 does not name SmolLM2-135M-Instruct as GGUF");
        return None;
    };
    let text = std::fs::read(golden("realmodel/smollm2_reference.json")).unwrap();
    Some((Real(ModelFolder::open(&path).unwrap()), serde_json::from_slice(&text).unwrap()))
}

/// The first twenty rows of the alpaca data as samples of at most 96 tokens; `None` is said.
fn alpaca(model: &Path) -> Option<Vec<OwnedRow>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/data");
    let data =
        std::env::var_os("ANNEAL_TEST_DATA").map_or(beside, PathBuf::from).join("llama_factory/alpaca_en_demo.json");
    if !data.exists() {
        println!("skipped: no {}", data.display());
        return None;
    }
    let (tokenizer, template) = (Tokenizer::open(model).unwrap(), Template::open(model).unwrap().unwrap());
    let settings = Settings {
        stage: Stage::Sft,
        max_length: 8192,
        too_long: TooLong::Drop,
        special_tokens_in_text: false,
        end_of_text: true,
    };
    let sampler = Sampler { tokenizer: &tokenizer, template: Some(&template), settings };
    let rows = dataset::read(&[data], &dataset::Options::default()).unwrap().take(20);
    let sample = |row| {
        let Ok(dataset::Row::Record(record)) = row else { panic!("a row of the data cannot be used") };
        let mut sample = sampler.whole(&record).unwrap().sample;
        sample.ids.truncate(96);
        sample.trained.truncate(96);
        let segments = vec![sample.ids.len() as u32];
        OwnedRow { tokens: sample.ids, trained: sample.trained, segments }
    };
    Some(rows.map(sample).collect())
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
fn smollm2_is_fine_tuned_as_torch_does_it() {
    let Some((real, reference)) = real_model() else { return };
    let Some(rows) = alpaca(real.0.path()) else { return };
    let mut plan = plan_of(real.config(), &Method::Full, &Rows(rows.clone()), 10, 2);
    let kind = OptimizerKind::Adamw;
    plan.optimizer =
        PlannedOptimizer { kind, learning_rate: 2e-5, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1, clip: 1.0 };
    plan.schedule = PlannedSchedule { kind: ScheduleKind::Constant, warmup_steps: 0, total_steps: 10 };
    let rows = Rows::drawn_in_order(rows, plan.run.seed);
    let plan = arranged(plan, 2, Recompute::Layers);
    let mut rank = Rank::new(&plan, 0, &Device::cpu(2), &real).unwrap();
    let tuned = &reference["finetune10"];
    for (loss, norm) in numbers(&tuned["loss"]).into_iter().zip(numbers(&tuned["grad_norm_before_clip"])) {
        let StepOutcome::Done(done) = rank.step(&rows).unwrap() else { panic!("a step was skipped") };
        println!("loss {} ({loss}), norm {} ({norm})", done.measured.loss, done.measured.grad_norm);
        assert!((done.measured.loss - loss).abs() < 1e-4, "{done:?}, not {loss}");
        assert!((done.measured.grad_norm / norm - 1.0).abs() < 1e-3, "{done:?}, not {norm}");
    }
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
