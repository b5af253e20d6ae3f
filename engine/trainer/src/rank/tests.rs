//! Whole runs: curves against torch and PEFT, accumulation, bad steps, and resuming bit for bit.

use super::*;
use crate::model::parameter::Parameter;
use crate::testing::*;
use crate::weights::{self, WithAdapter};
use formats::adapter::Adapter;
use kernels::Compute;
use protocol::facts::{ModelConfig, PROJECTIONS};
use protocol::job::ScheduleKind;
use protocol::plan::{Method, PlannedOptimizer, PlannedSchedule, Recompute};
use std::path::Path;
use store::checkpoint::{Restore, Writer};
use store::disk::RealDisk;

/// The reference run of `train/`: 50 steps of 4 rows.
fn reference_run(method: &Method, learning_rate: f64, weight_decay: f64) -> (Plan, Rows) {
    let data = Golden::open("train/data.safetensors");
    let (config, _) = folder("models/llama");
    let mut plan = plan_of(&config, method, &Rows(data.rows()), 50, 4);
    let kind = plan.optimizer.kind;
    plan.optimizer = PlannedOptimizer { kind, learning_rate, betas: [0.9, 0.95], eps: 1e-8, weight_decay, clip: 1.0 };
    plan.schedule = PlannedSchedule { kind: ScheduleKind::Cosine, warmup_steps: 5, total_steps: 50 };
    let rows = Rows::drawn_in_order(data.rows(), plan.run.seed);
    (from_folder(plan, "models/llama"), rows)
}

fn host(rank: &Rank, parameter: &Parameter) -> Vec<f32> {
    rank.model.stream().to_host(&parameter.weight)
}

fn assert_weights(rank: &Rank, reference: &Golden, prefix: &str) {
    for p in rank.model.parameters() {
        let far = distance(&host(rank, p), &reference.f32(&format!("{prefix}.{}", p.tensor.name)));
        assert!(far < 1e-4, "{prefix}: {} differs by {far}", p.tensor.name);
    }
}

fn done(outcome: StepOutcome) -> crate::step::Done {
    match outcome {
        StepOutcome::Done(done) => done,
        StepOutcome::Skipped { problem, .. } => panic!("{problem:?}"),
    }
}

/// Fifty steps; compares loss, gradient norm and rate of each.
fn follow(rank: &mut Rank, rows: &Rows, reference: &Golden, mut each: impl FnMut(&Rank, u64)) {
    let (loss, norm) = (reference.f64("loss"), reference.f64("grad_norm"));
    for s in 0..50 {
        let done = done(rank.step(rows).unwrap());
        assert!((done.measured.loss - loss[s]).abs() < 1e-4, "step {s}: loss {}, not {}", done.measured.loss, loss[s]);
        assert!((done.measured.grad_norm / norm[s] - 1.0).abs() < 1e-3, "step {s}: {:?}, not {}", done, norm[s]);
        each(rank, done.step);
    }
    assert!(rank.is_finished());
}

#[test]
fn full_training_follows_torch_for_fifty_steps_however_it_is_accumulated() {
    let reference = Golden::open("train/full.safetensors");
    let rates = reference.f64("lr");
    let runs = [(Device::cpu(1), 4), (Device::cpu(2), 2), (Device::hidden(2), 1)];
    for (device, micro_batch) in runs {
        let (plan, rows) = reference_run(&Method::Full, 2e-3, 0.1);
        let plan = arranged(plan, micro_batch, Recompute::None);
        let mut rank = Rank::new(&plan, 0, &device, weights::first(&plan).unwrap().as_ref()).unwrap();
        follow(&mut rank, &rows, &reference, |rank, step| {
            if [1, 2, 10].contains(&step) {
                assert_weights(rank, &reference, &format!("after_step_{step}"));
            }
        });
        assert_weights(&rank, &reference, "final");
        for (name, _, buffer) in rank.optimizer.state(rank.model.parameters()) {
            let (parameter, slot) = name.rsplit_once('.').unwrap();
            let far =
                distance(&rank.model.stream().to_host(buffer), &reference.f32(&format!("final_{slot}.{parameter}")));
            assert!(far < 1e-4, "{name} differs by {far}");
        }
        let rate = crate::schedule::rate(&plan.schedule, plan.optimizer.learning_rate, 7);
        assert!((rate - rates[7]).abs() < 1e-12);
    }
}

/// The reference run on a card, in three orders of threads: the same curve, and with bf16 products one as near as torch's.
#[test]
fn a_card_follows_torch_for_fifty_steps() {
    let reference = Golden::open("train/full.safetensors");
    let losses = reference.f64("loss");
    on_card(Compute::F32, |device| {
        let (plan, rows) = reference_run(&Method::Full, 2e-3, 0.1);
        let mut rank = start(&arranged(plan, 2, Recompute::Layers), device);
        follow(&mut rank, &rows, &reference, |_, _| ());
        assert_weights(&rank, &reference, "final");
    });
    on_card(Compute::Bf16, |device| {
        let (plan, rows) = reference_run(&Method::Full, 2e-3, 0.1);
        let mut rank = start(&arranged(plan, 4, Recompute::None), device);
        for loss in &losses {
            let measured = done(rank.step(&rows).unwrap()).measured;
            assert!((measured.loss - loss).abs() < 0.03, "{measured:?}, not {loss}");
        }
    });
}

#[test]
fn an_adapter_on_a_card_follows_peft_for_fifty_steps() {
    let reference = Golden::open("train/lora/golden.safetensors");
    on_card(Compute::F32, |device| {
        let (plan, rows) = reference_run(&lora(4, 0.0, &PROJECTIONS), 1e-2, 0.0);
        let adapter = Box::new(Adapter::open(&golden("train/lora/adapter_init")).unwrap());
        let weights = WithAdapter { base: folder("models/llama").1, adapter };
        let mut rank = Rank::new(&arranged(plan, 4, Recompute::None), 0, device, &weights).unwrap();
        follow(&mut rank, &rows, &reference, |_, _| ());
    });
}

#[test]
fn a_run_resumed_on_a_card_is_bit_for_bit_the_one_that_never_stopped() {
    on_card(Compute::F32, |device| {
        let (plan, rows) = small_run(&lora(3, 0.4, &["q_proj", "o_proj", "up_proj"]));
        let (mut whole, mut halves) = (start(&plan, device), start(&plan, device));
        for step in 0..6 {
            if step == 3 {
                let temp = tempfile::tempdir().unwrap();
                let from = save(&halves, &temp.path().join("checkpoints"));
                halves = Rank::restore(&plan, 0, device, &from).unwrap().0;
            }
            assert_eq!(done(whole.step(&rows).unwrap()), done(halves.step(&rows).unwrap()));
        }
        assert!(everything(&whole) == everything(&halves));
    });
}

#[test]
fn an_adapter_follows_peft_for_fifty_steps_however_it_is_accumulated() {
    let reference = Golden::open("train/lora/golden.safetensors");
    let method = lora(4, 0.0, &PROJECTIONS);
    for (device, micro_batch) in [(Device::cpu(2), 4), (Device::cpu(1), 2), (Device::hidden(1), 1)] {
        let (plan, rows) = reference_run(&method, 1e-2, 0.0);
        let plan = arranged(plan, micro_batch, Recompute::Layers);
        let base = folder("models/llama").1;
        let adapter = Box::new(Adapter::open(&golden("train/lora/adapter_init")).unwrap());
        let mut rank = Rank::new(&plan, 0, &device, &WithAdapter { base, adapter }).unwrap();
        follow(&mut rank, &rows, &reference, |_, _| ());
        let last = Adapter::open(&golden("train/lora/adapter_final")).unwrap();
        for p in rank.model.parameters() {
            let mut expected = vec![0.0; p.weight.len()];
            last.read_f32(&p.tensor.name, &mut expected).unwrap();
            let far = distance(&host(&rank, p), &expected);
            assert!(far < 1e-4, "{} differs by {far}", p.tensor.name);
        }
    }
}

/// A run of an odd shape with everything that could be forgotten: biases, dropout, padding, a partial last step, two epochs.
fn small_run(method: &Method) -> (Plan, Rows) {
    let rows = Rows::made_up(7, 13, 61);
    // A row for each entry of the tokenizer that its checkpoints carry.
    let config = ModelConfig { vocab: 384, ..stretched_config(true) };
    let mut plan = plan_of(&config, method, &rows, 6, 3);
    plan.run.rows_total = 17;
    plan.optimizer.learning_rate = 1e-2;
    plan.schedule = PlannedSchedule { kind: ScheduleKind::Linear, warmup_steps: 2, total_steps: 6 };
    plan.model.tokenizer = golden("models/llama");
    (arranged(plan, 2, Recompute::None), rows)
}

/// Everything a run consists of, as bits.
fn everything(rank: &Rank) -> Vec<Vec<u32>> {
    let parameters = rank.model.parameters();
    let moments = rank.optimizer.state(parameters).map(|(_, _, buffer)| buffer);
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    parameters.iter().map(|p| &p.weight).chain(moments).map(|b| bits(rank.model.stream().to_host(b))).collect()
}

fn start(plan: &Plan, device: &Device) -> Rank {
    Rank::new(plan, 0, device, weights::first(plan).unwrap().as_ref()).unwrap()
}

fn save(rank: &Rank, checkpoints: &Path) -> Restore {
    std::fs::create_dir_all(checkpoints).unwrap();
    let writer = Writer::begin(&RealDisk, checkpoints, rank.progress().step, "run").unwrap();
    rank.save(writer, &[]).unwrap();
    let folder = checkpoints.join(store::checkpoint::folder_name(rank.progress().step));
    Restore::open(&RealDisk, &folder).unwrap()
}

#[test]
fn a_resumed_run_is_bit_for_bit_the_one_that_never_stopped() {
    for method in [Method::Full, lora(3, 0.4, &["q_proj", "o_proj", "up_proj"])] {
        let (plan, rows) = small_run(&method);
        let mut whole = start(&plan, &Device::cpu(1));
        let mut halves = start(&plan, &Device::cpu(2));
        let mut losses = (Vec::new(), Vec::new());
        for step in 0..6 {
            losses.0.push(done(whole.step(&rows).unwrap()));
            if step == 3 {
                let temp = tempfile::tempdir().unwrap();
                let from = save(&halves, &temp.path().join("checkpoints"));
                halves = Rank::restore(&plan, 0, &Device::hidden(2), &from).unwrap().0;
            }
            losses.1.push(done(halves.step(&rows).unwrap()));
        }
        assert_eq!(losses.0, losses.1);
        assert!(everything(&whole) == everything(&halves), "{method:?}");
    }
}

#[test]
fn a_full_checkpoint_is_a_model_folder_and_an_adapters_a_peft_folder() {
    let temp = tempfile::tempdir().unwrap();
    let (plan, _) = small_run(&Method::Full);
    let rank = start(&plan, &Device::cpu(1));
    let saved = save(&rank, &temp.path().join("full"));
    let folder = formats::model_folder::ModelFolder::open(&saved.dir).unwrap();
    assert_eq!(folder.config(), &plan.model.config);
    assert!(saved.dir.join("tokenizer.json").is_file() && saved.dir.join("optimizer-00001.safetensors").is_file());

    let method = lora(3, 0.0, &["q_proj"]);
    let rank = start(&small_run(&method).0, &Device::cpu(1));
    let saved = save(&rank, &temp.path().join("adapter"));
    let adapter = Adapter::open(&saved.dir).unwrap();
    assert_eq!((adapter.config.rank, adapter.config.alpha), (3, 6.0));
    assert!(!saved.dir.join("model.safetensors").exists());
}

fn export_as(from: &Path, to: &Path, format: &str, dtype: &str) -> protocol::verb::Exported {
    let (from, to) = (from.to_owned(), to.to_owned());
    let request = protocol::verb::Export { from, to, format: format.into(), dtype: dtype.into(), base: None };
    crate::verb::export::main(request, &mut crate::verb::Lines::new(Vec::new())).unwrap()
}

#[test]
fn an_adapter_over_a_gguf_file_is_resumed_bit_for_bit_and_finds_its_base() {
    let temp = tempfile::tempdir().unwrap();
    let to = temp.path().join("base");
    export_as(&golden("models/llama"), &to, "gguf", "q8_0");
    let model = formats::model_folder::ModelFolder::open(&to.join("model.gguf")).unwrap();
    let rows = Rows::made_up(7, 13, 61);
    for method in [lora(3, 0.4, &["q_proj", "o_proj", "up_proj"]), Method::Full] {
        let mut plan = plan_of(model.config(), &method, &rows, 6, 3);
        plan.model.fingerprint = formats::fingerprint::files(&model.weight_files()).unwrap();
        plan.model.source = protocol::plan::ModelSource::Folder { path: model.path().to_owned() };
        plan.model.tokenizer = golden("models/llama");
        let plan = arranged(plan, 2, Recompute::None);
        let mut whole = start(&plan, &Device::cpu(1));
        for _ in 0..2 {
            done(whole.step(&rows).unwrap());
        }
        let saved = save(&whole, &temp.path().join(format!("{}", method == Method::Full)));
        let (mut resumed, _) = Rank::restore(&plan, 0, &Device::cpu(2), &saved).unwrap();
        for _ in 0..2 {
            done(whole.step(&rows).unwrap());
        }
        for _ in 0..2 {
            done(resumed.step(&rows).unwrap());
        }
        assert!(everything(&whole) == everything(&resumed), "{method:?}");
        // The checkpoint names its base, and is written for others without being told of it.
        let merged = temp.path().join(format!("merged-{}", method == Method::Full));
        let exported = export_as(&saved.dir, &merged, "safetensors", "f32");
        assert!(exported.max_logit_difference < 1e-4, "{exported:?}");
    }
}

#[test]
fn events_that_were_not_journaled_come_back_with_the_checkpoint() {
    let (plan, rows) = small_run(&Method::Full);
    let mut rank = start(&plan, &Device::cpu(1));
    let event = done(rank.step(&rows).unwrap()).event(0.5);
    let evaluation = rank.evaluate(&rows, &mut |_| ()).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let writer = Writer::begin(&RealDisk, temp.path(), 1, "run").unwrap();
    rank.save(writer, std::slice::from_ref(&event)).unwrap();
    let from = Restore::open(&RealDisk, &temp.path().join("step-00000001")).unwrap();
    let (restored, events) = Rank::restore(&plan, 0, &Device::cpu(1), &from).unwrap();
    assert_eq!(events, [event]);
    assert_eq!(restored.best(), Some(Best { step: 1, loss: evaluation.loss }));
    assert_eq!(restored.progress(), rank.progress());
}

#[test]
fn a_checkpoint_of_another_model_is_refused_by_name() {
    let (mut plan, _) = small_run(&Method::Full);
    let temp = tempfile::tempdir().unwrap();
    let from = save(&start(&plan, &Device::cpu(1)), temp.path());
    plan.model.fingerprint = "another".into();
    let problem = Rank::restore(&plan, 0, &Device::cpu(1), &from).err().unwrap();
    assert_eq!(problem.code, Code::ModelChanged);
}

#[test]
fn a_base_model_that_changed_is_refused_by_name() {
    let (plan, _) = reference_run(&Method::Full, 1e-3, 0.0);
    assert!(weights::first(&plan).is_ok());
    let changed =
        Plan { model: protocol::plan::PlannedModel { fingerprint: "old".into(), ..plan.model.clone() }, ..plan };
    let problem = weights::first(&changed).err().unwrap();
    assert_eq!(problem.code, Code::ModelChanged);
    assert!(problem.place.file.unwrap().ends_with("models/llama"));
}

/// Puts a NaN into the first element of a weight.
fn poison(rank: &Rank, name: &str) {
    let parameter = rank.model.parameters().iter().find(|p| p.tensor.name == name).unwrap();
    rank.model.stream().copy_from_host(&parameter.weight.slice(0..1), &[f32::NAN]);
}

#[test]
fn a_weight_that_is_no_number_is_named_and_nothing_moves() {
    let (plan, rows) = small_run(&Method::Full);
    let name = "model.layers.1.mlp.up_proj.weight";
    let mut rank = start(&plan, &Device::cpu(1));
    poison(&rank, name);
    let before = everything(&rank);
    for step in 1..5 {
        let outcome = rank.step(&rows).unwrap();
        assert!(
            matches!(outcome, StepOutcome::Skipped { step: s, problem } if s == step && problem.code == Code::NotFinite)
        );
    }
    let problem = rank.step(&rows).unwrap_err();
    assert_eq!((problem.code, problem.place.tensor.as_deref()), (Code::NotFinite, Some(name)));
    assert!(everything(&rank) == before);
    assert_eq!((rank.progress().skipped, rank.progress().updates, rank.progress().tokens), (4, 0, 0));
}

#[test]
fn a_step_without_targets_is_left_out_and_said() {
    let (plan, mut rows) = small_run(&Method::Full);
    rows.0.iter_mut().for_each(|row| row.trained.fill(0));
    let mut rank = start(&plan, &Device::cpu(1));
    let before = everything(&rank);
    for _ in 0..6 {
        let outcome = rank.step(&rows).unwrap();
        assert!(matches!(outcome, StepOutcome::Skipped { problem, .. } if problem.code == Code::NoUsableRows));
    }
    assert!(everything(&rank) == before);
}

#[test]
fn data_that_is_not_the_plans_is_refused() {
    let (plan, mut rows) = small_run(&Method::Full);
    let mut rank = start(&plan, &Device::cpu(1));
    rows.0.pop();
    assert_eq!(rank.step(&rows).unwrap_err().code, Code::DataChanged);
    let (_, mut longer) = small_run(&Method::Full);
    longer.0[3] = Rows::made_up(1, 14, 61).0.remove(0);
    let failed = (0..3).find_map(|_| rank.step(&longer).err()).unwrap();
    assert_eq!(failed.code, Code::DataChanged);
}

#[test]
fn the_loss_of_an_evaluation_does_not_depend_on_the_micro_batch() {
    let (plan, rows) = small_run(&Method::Full);
    let losses = [1, 2, 7].map(|micro_batch| {
        let mut rank = start(&arranged(plan.clone(), micro_batch, Recompute::None), &Device::cpu(2));
        let evaluation = rank.evaluate(&rows, &mut |_| ()).unwrap();
        assert!(evaluation.is_best && !rank.evaluate(&rows, &mut |_| ()).unwrap().is_best);
        assert_eq!(evaluation.targets, rows.0.iter().map(|r| r.row().targets()).sum::<u64>());
        evaluation.loss
    });
    assert!(losses.iter().all(|l| (l - losses[0]).abs() < 1e-6), "{losses:?}");
}

#[test]
fn what_a_later_version_brings_is_refused_by_name() {
    let (mut plan, _) = small_run(&Method::Full);
    let refused =
        |plan: &Plan| Rank::new(plan, 0, &Device::cpu(1), weights::first(plan).unwrap().as_ref()).err().unwrap();
    plan.strategy.tp = 2;
    assert_eq!(refused(&plan).code, Code::NotSupported);
}

#[test]
fn a_device_that_is_too_small_is_said_before_the_first_step() {
    let (plan, _) = small_run(&Method::Full);
    let device = Device::cpu(1);
    device.set_budget(Some(10_000));
    let problem = Rank::new(&plan, 0, &device, weights::first(&plan).unwrap().as_ref()).err().unwrap();
    assert_eq!(problem.code, Code::OutOfMemory);
}
