//! Whole plans and whole refusals: machine, model and wish in, decision out.

use crate::{Model, max_length, memory, plan, preset, size};
use proptest::prelude::*;
use protocol::facts::{DeviceFacts, MachineFacts, ModelConfig, SetFacts, TokenFacts};
use protocol::job::{Auto, OptimizerKind, bytes};
use protocol::plan::{ModelSource, Plan, Recompute};
use protocol::problem::Way;
use protocol::{Code, JobSpec, Outcome, Problem};
use std::path::Path;

const TRAINED: &str = "stage = \"sft\"\n[model]\npath = \"m\"\n[data]\ntrain = [\"d.jsonl\"]\n";
const FRESH: &str = "stage = \"pretrain\"\n[model]\npreset = \"nano\"\n[data]\ntrain = [\"d.txt\"]\n";

/// Everything a plan is made from.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    job: String,
    changes: Vec<String>,
    model: Model,
    tokens: TokenFacts,
    pub(crate) machine: MachineFacts,
}

impl Case {
    /// A trained model on a desktop with 16 GB, 1000 samples of 370 tokens on average and 400 at most.
    pub(crate) fn trained(config: ModelConfig) -> Case {
        let source = ModelSource::Folder { path: "/m".into() };
        let bytes = config.parameters() * 2;
        let model = Model { bytes, dtype: "BF16".into(), source, ..fresh_model(config) };
        Case { job: TRAINED.into(), changes: vec![], model, tokens: tokens(1000, 1000, 370, 400), machine: desktop() }
    }

    /// The nano preset on rows of text that fill its context.
    fn fresh() -> Case {
        let model = fresh_model(preset("nano", 512).unwrap());
        Case { job: FRESH.into(), changes: vec![], model, tokens: tokens(3000, 3000, 128, 128), machine: desktop() }
    }

    /// The same job on another machine.
    pub(crate) fn on(self, machine: MachineFacts) -> Case {
        Case { machine, ..self }
    }

    pub(crate) fn set(mut self, change: &str) -> Case {
        self.changes.push(change.to_owned());
        self
    }

    fn spec(&self) -> JobSpec {
        JobSpec::parse(&self.job, &self.changes, Path::new("/")).unwrap()
    }

    pub(crate) fn plan(&self) -> Outcome<Plan> {
        plan(&self.spec(), &self.model, &self.tokens, &self.machine)
    }

    pub(crate) fn refusal(&self) -> Problem {
        self.plan().map(|plan| decisions(&plan)).expect_err("this job must be refused")
    }
}

fn fresh_model(config: ModelConfig) -> Model {
    Model {
        source: ModelSource::Scratch,
        fingerprint: "f".into(),
        config,
        bytes: 0,
        dtype: "F32".into(),
        tokenizer: "/t".into(),
    }
}

/// SmolLM2-135M's shape.
pub(crate) fn llama_135m() -> ModelConfig {
    ModelConfig {
        layers: 30,
        hidden: 576,
        intermediate: 1536,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        context: 2048,
        ..preset("nano", 49152).unwrap()
    }
}

fn tokens(rows: u64, samples: u64, mean: u64, longest: u64) -> TokenFacts {
    let train =
        SetFacts { rows, samples, tokens: rows * mean, targets: rows * mean / 2, longest, ..Default::default() };
    TokenFacts {
        path: "/tokens".into(),
        fingerprint: "t".into(),
        data_fingerprint: "d".into(),
        tokenizer_fingerprint: "k".into(),
        tokenizer: "/t".into(),
        vocab: 512,
        eos: 0,
        max_length: 1024,
        train,
        evaluation: SetFacts::default(),
        notes: vec![],
        survey: Default::default(),
    }
}

pub(crate) fn desktop() -> MachineFacts {
    MachineFacts {
        cpu: "a CPU".into(),
        cores: 2,
        instruction_set: "avx2".into(),
        host_memory_total: 16 << 30,
        host_memory_available: 14 << 30,
        disk_free: 100 << 30,
        gemm_gflops: 180.0,
        memory_gb_per_second: 40.0,
        devices: vec![DeviceFacts { name: "cpu".into(), memory_total: 16 << 30, memory_free: 14 << 30, card: None }],
        nccl: false,
    }
}

/// The decisions of a plan in one line.
fn decisions(plan: &Plan) -> String {
    let (run, warmup) = (&plan.run, plan.schedule.warmup_steps);
    format!(
        "{} steps of {} rows ({} in all), {} x {}, recompute {:?}, lr {}, warm-up {warmup}",
        run.steps,
        run.global_batch,
        run.rows_total,
        plan.gradient_accumulation,
        plan.micro_batch,
        plan.recompute,
        plan.optimizer.learning_rate,
    )
}

#[test]
fn open_settings_are_decided_for_each_kind_of_training() {
    let lora = |case: Case| case.set("model.adapter.rank=16");
    let cases = [
        (
            Case::trained(llama_135m()),
            "63 steps of 16 rows (1000 in all), 4 x 4, recompute None, lr 0.00002, warm-up 2",
        ),
        (
            lora(Case::trained(llama_135m())).set("run.steps=10"),
            "10 steps of 16 rows (160 in all), 4 x 4, recompute None, lr 0.0002, warm-up 1",
        ),
        (Case::fresh(), "94 steps of 32 rows (3000 in all), 2 x 16, recompute None, lr 0.001, warm-up 3"),
        (
            Case::fresh().set("run.tokens=100000").set("run.global_batch=10").set("schedule.warmup=0"),
            "79 steps of 10 rows (782 in all), 1 x 10, recompute None, lr 0.001, warm-up 0",
        ),
        (
            Case::fresh().set("run.epochs=0.0001").set("schedule.warmup=5"),
            "1 steps of 32 rows (1 in all), 32 x 1, recompute None, lr 0.001, warm-up 5",
        ),
    ];
    for (case, expected) in cases {
        assert_eq!(decisions(&case.plan().unwrap()), expected);
    }
}

#[test]
fn every_open_setting_comes_with_a_reason() {
    let plan = Case::trained(llama_135m()).set("model.adapter.rank=8").plan().unwrap();
    let fields: Vec<&str> = plan.reasons.iter().map(|r| r.field.as_str()).collect();
    for field in [
        "machine.devices",
        "machine.precision",
        "machine.strategy",
        "machine.offload",
        "machine.device_memory",
        "model.adapter.alpha",
        "model.adapter.targets",
        "data.max_length",
        "optimizer.learning_rate",
        "schedule.warmup",
        "run.steps",
        "run.global_batch",
        "run.evaluate_every",
        "snapshot.every_steps",
        "micro_batch",
        "recompute",
    ] {
        assert_eq!(fields.iter().filter(|f| **f == field).count(), 1, "{field} in {fields:?}");
    }
    assert!(plan.reasons.iter().all(|r| !r.why.is_empty() && !r.value.is_empty()));
}

#[test]
fn packed_rows_count_their_samples_in_an_open_batch() {
    let mut case = Case::trained(llama_135m());
    case.tokens = tokens(100, 800, 900, 1024);
    assert_eq!(case.plan().unwrap().run.global_batch, 2);
}

#[test]
fn a_tight_budget_computes_layers_again_instead_of_refusing() {
    let roomy = Case::trained(llama_135m()).plan().unwrap();
    assert_eq!(roomy.recompute, Recompute::None);
    let tight = Case::trained(llama_135m()).set("machine.device_memory=2300MB").plan().unwrap();
    assert_eq!(tight.recompute, Recompute::Layers);
    assert!(tight.memory.devices[0].bytes_peak <= 2300 << 20);
    assert!(tight.predicted.step_ms > roomy.predicted.step_ms);
}

#[test]
fn a_job_that_cannot_fit_is_refused_with_both_numbers_and_settings_that_do_fit() {
    let trained = || Case::trained(llama_135m());
    let needs = size(smallest(&trained(), &trained().plan().unwrap()), true);
    let case = trained().set("machine.device_memory=700MB");
    let problem = case.refusal();
    assert_eq!(problem.code, Code::OutOfMemory);
    assert_eq!(problem.what, format!("the job needs {needs} on cpu and has 700 MB"));
    let ways: Vec<&str> = problem.remedy.split("; ").collect();
    assert_eq!(ways, ["LoRA rank 16 fits".to_owned(), format!("a budget of {needs} fits")]);
    assert!(problem.room.is_some_and(|room| room.has == 700 << 20 && room.needs > room.has), "{problem:?}");
    // What the refusal promises is kept.
    assert_eq!(problem.ways.len(), 2);
    for way in &problem.ways {
        let changed = way.set.iter().fold(trained().set("machine.device_memory=700MB"), |case, (key, value)| {
            case.set(&format!("{key}={value}"))
        });
        assert!(changed.plan().is_ok(), "{way:?}");
    }
}

#[test]
fn shorter_rows_are_offered_where_they_are_enough() {
    let mut case = Case::trained(llama_135m()).set("model.adapter.rank=16").set("machine.device_memory=640MB");
    case.tokens = tokens(1000, 1000, 1000, 1024);
    let problem = case.refusal();
    assert!(!problem.remedy.contains("max_length"), "answers are not cut, so no row would be left: {problem:?}");
    case.tokens = tokens(1000, 1000, 100, 1024);
    let problem = case.refusal();
    let length: u32 = problem.remedy.strip_prefix("max_length ").unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((100..1024).contains(&length), "{problem:?}");
    assert_eq!(problem.ways[0].set["data.max_length"], length.to_string());
    case.tokens = tokens(1000, 1000, 10, length as u64);
    assert!(case.plan().is_ok());
}

#[test]
fn free_memory_can_refuse_but_never_changes_a_decision() {
    let mut case = Case::trained(llama_135m());
    let roomy = case.plan().unwrap();
    case.machine.host_memory_available = 8 << 30;
    assert_eq!(case.plan().unwrap(), roomy);
    case.machine.host_memory_available = 1 << 30;
    let problem = case.refusal();
    assert_eq!(problem.code, Code::OutOfMemory);
    assert!(problem.what.contains("1024 MB are free now"), "{problem:?}");
}

#[test]
fn a_full_disk_is_refused_before_anything_starts() {
    let mut case = Case::trained(llama_135m());
    case.machine.disk_free = 5 << 30;
    let problem = case.refusal();
    assert_eq!(problem.code, Code::DiskFull);
    assert!(problem.what.contains("need 7733 MB") && problem.what.contains("5120 MB are free"), "{problem:?}");
    assert!(problem.remedy.contains("snapshot.keep = 2 and snapshot.keep_best = 0"), "{problem:?}");
    assert_eq!(problem.ways, [Way::set("snapshot.keep", 2).and("snapshot.keep_best", 0)]);
    assert!(case.set("snapshot.keep=2").set("snapshot.keep_best=0").plan().is_ok());
}

#[test]
fn features_of_later_versions_are_refused_by_name() {
    let cases = [
        ("machine.devices=[\"cpu\", \"cpu\"]", "2 ranks"),
        ("machine.strategy={ dp = 2 }", "dp = 2"),
        ("machine.precision=\"bf16\"", "bf16"),
        ("machine.offload=\"disk\"", "offloading"),
        ("machine.strategy={ tp = 2 }", "tp = 2"),
        ("machine.strategy={ schedule = \"zigzag\" }", "zigzag"),
        ("snapshot.every_steps=5", "snapshots in host memory"),
    ];
    for (change, named) in cases {
        let case = Case::trained(llama_135m()).set(change);
        let problem = case.refusal();
        assert_eq!(problem.code, Code::NotSupported, "{change}");
        assert_eq!(
            crate::check(&case.spec(), &case.model.config, &case.machine),
            Err(problem.clone()),
            "known without data: {change}"
        );
        assert!(problem.what.contains(named) && problem.what.contains("later version"), "{change}: {problem:?}");
        assert!(!problem.remedy.is_empty() && problem.place.field.is_some(), "{change}: {problem:?}");
    }
}

#[test]
fn settings_that_contradict_the_model_are_refused_with_their_field() {
    let cases = [
        (Case::trained(llama_135m()).set("data.max_length=4096"), Code::SettingInvalid, "data.max_length"),
        (Case::trained(llama_135m()).set("machine.devices=[]"), Code::SettingInvalid, "machine.devices"),
        (Case::trained(llama_135m()).set("machine.devices=[\"tpu\"]"), Code::NotFound, "machine.devices"),
        (Case::trained(llama_135m()).set("machine.strategy={ dp = 0 }"), Code::SettingInvalid, "machine.strategy.dp"),
        (
            Case::trained(llama_135m()).set("machine.strategy={ zero = 4 }"),
            Code::SettingInvalid,
            "machine.strategy.zero",
        ),
        (
            Case::trained(llama_135m()).set("model.adapter.targets=[\"lm_head\"]"),
            Code::SettingInvalid,
            "model.adapter.targets",
        ),
        (Case::fresh().set("model.adapter.rank=8"), Code::SettingInvalid, "model.adapter"),
        (Case::fresh().set("run.tokens=9000000000000000000"), Code::SettingInvalid, "run.tokens"),
    ];
    for (case, code, field) in cases {
        let problem = case.refusal();
        assert_eq!((problem.code, problem.place.field.as_deref()), (code, Some(field)), "{problem:?}");
    }
}

#[test]
fn rows_of_very_different_length_are_not_padded_together() {
    let mut case = Case::trained(llama_135m());
    case.tokens = tokens(1000, 1000, 200, 1024);
    assert_eq!(case.plan().unwrap().micro_batch, 1);
    case.tokens = tokens(1000, 1000, 1000, 1024);
    assert_eq!(case.plan().unwrap().micro_batch, 2);
}

#[test]
fn a_data_set_without_rows_is_refused() {
    let mut case = Case::fresh();
    case.tokens = tokens(0, 0, 0, 0);
    case.tokens.train.dropped.insert("row_too_long".into(), 12);
    let problem = case.refusal();
    assert_eq!(problem.code, Code::NoUsableRows);
    assert!(problem.why.contains("12 × row_too_long"), "{problem:?}");
}

#[test]
fn a_machine_file_without_speeds_is_refused() {
    for speed in [0.0, f64::NAN, -1.0, f64::INFINITY] {
        let mut case = Case::fresh();
        case.machine.gemm_gflops = speed;
        assert_eq!(case.refusal().place.field.as_deref(), Some("gemm_gflops"));
    }
}

#[test]
fn targets_are_put_in_the_order_of_the_forward_pass() {
    let case = Case::trained(llama_135m()).set("model.adapter.targets=[\"down_proj\", \"q_proj\", \"down_proj\"]");
    let plan = serde_json::to_value(case.plan().unwrap()).unwrap();
    assert_eq!(plan["method"]["targets"], serde_json::json!(["q_proj", "down_proj"]));
    assert_eq!(plan["method"]["alpha"], 32.0);
}

#[test]
fn an_open_length_is_the_context_but_at_most_1024() {
    let case = Case::fresh();
    assert_eq!(max_length(&case.spec(), 128).0, 128);
    assert_eq!(max_length(&case.spec(), 8192).0, 1024);
    assert_eq!(max_length(&case.set("data.max_length=4096").spec(), 8192).0, 4096);
}

#[test]
fn a_plan_survives_its_json_and_is_the_same_each_time() {
    let case = Case::trained(llama_135m()).set("model.adapter.rank=16");
    let plan = case.plan().unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    assert_eq!(serde_json::to_string(&case.plan().unwrap()).unwrap(), text);
}

#[test]
fn the_libraries_behind_the_bits_are_named() {
    let libraries = Case::fresh().plan().unwrap().compute.libraries;
    assert_eq!(libraries["anneal"], env!("CARGO_PKG_VERSION"));
}

/// Jobs, data sets and machines of every size, those that are refused included.
fn any_case() -> impl Strategy<Value = Case> {
    let data = (1u64..5000, 1u64..8, 1u64..1024, 0u64..1024);
    let machine = (20u32..36, 20u32..38, 1u32..64);
    let wish = (0u32..3, 1u32..200, 0u64..4, 0.01f64..3.0, 1u64..10_000, 0u32..24);
    (data, machine, wish, proptest::bool::ANY).prop_map(|(data, machine, wish, trained)| {
        let shallow = ModelConfig { layers: 3, ..llama_135m() };
        let mut case = if trained { Case::trained(shallow) } else { Case::fresh() };
        let (rows, samples, mean, more) = data;
        let context = case.model.config.context as u64;
        let longest = (mean + more).min(context);
        case.tokens = tokens(rows, rows * samples, mean.min(longest), longest);
        case.machine.host_memory_total = 1 << machine.0;
        case.machine.host_memory_available = 1 << machine.0;
        case.machine.disk_free = 1 << machine.1;
        case.machine.cores = machine.2;
        let (adapter, batch, kind, epochs, count, budget) = wish;
        if budget > 0 {
            case = case.set(&format!("machine.device_memory={}KB", 1u64 << budget));
        }
        if trained && adapter > 0 {
            case = case.set(&format!("model.adapter.rank={adapter}"));
        }
        case = case.set(&format!("run.global_batch={batch}"));
        match kind {
            0 => case,
            1 => case.set(&format!("run.epochs={epochs}")),
            2 => case.set(&format!("run.steps={count}")),
            _ => case.set(&format!("run.tokens={count}")),
        }
    })
}

/// What holds for every plan.
fn check(case: &Case, plan: &Plan) {
    let (run, device) = (&plan.run, &plan.memory.devices[0]);
    let batch = run.global_batch as u64;
    assert_eq!(plan.strategy.world_size() as usize, plan.devices.len());
    assert_eq!(plan.memory.devices.len(), plan.devices.len());
    assert!(run.steps >= 1 && run.rows_total >= 1);
    assert!(run.steps * batch >= run.rows_total && (run.steps - 1) * batch < run.rows_total);
    assert!(plan.micro_batch >= 1 && plan.micro_batch <= run.global_batch);
    assert_eq!(plan.gradient_accumulation, run.global_batch.div_ceil(plan.micro_batch));
    assert!(device.bytes_peak <= device.bytes_total && device.bytes_total <= case.machine.host_memory_total);
    assert_eq!(device.bytes_peak, plan.memory.arena.iter().map(|line| line.bytes).sum::<u64>());
    assert_eq!(device.bytes_peak, device.parts.total());
    assert!(plan.memory.host_bytes_peak >= device.bytes_peak);
    assert!(plan.memory.disk_bytes <= case.machine.disk_free);
    assert!(plan.predicted.step_ms > 0.0 && plan.predicted.mfu > 0.0 && plan.predicted.mfu < 1.0);
    assert!(plan.alternatives.len() <= 2);
    for other in &plan.alternatives {
        assert!(other.bytes_peak <= device.bytes_total && other.step_ms >= plan.predicted.step_ms);
        assert!((other.micro_batch, other.recompute) != (plan.micro_batch, plan.recompute));
    }
}

/// Bytes of the smallest setting, from the table itself.
fn smallest(case: &Case, plan: &Plan) -> u64 {
    let table = |r| memory::table(&case.model.config, &plan.method, OptimizerKind::Adamw, 1, plan.data.max_length, r);
    let total = |r| table(r).iter().map(|line| line.bytes).sum::<u64>();
    total(Recompute::None).min(total(Recompute::Layers))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_keeps_the_invariants_and_every_refusal_is_earned(case in any_case()) {
        let (planned, again) = (case.plan(), case.plan());
        prop_assert_eq!(&planned, &again);
        match planned {
            Ok(plan) => check(&case, &plan),
            Err(problem) => {
                prop_assert!(!problem.remedy.is_empty());
                earned(&case, &problem);
            }
        }
    }
}

/// A refusal for lack of room is right only if the smallest setting does not fit, seen from a machine where it does.
fn earned(case: &Case, problem: &Problem) {
    let small = &case.machine;
    let machine =
        MachineFacts { host_memory_total: 1 << 40, host_memory_available: 1 << 40, disk_free: 1 << 45, ..desktop() };
    let mut spec = case.spec();
    spec.machine.device_memory = Auto::Auto;
    let plan = plan(&spec, &case.model, &case.tokens, &machine).expect("only room was missing");
    match problem.code {
        Code::DiskFull => assert!(plan.memory.disk_bytes > small.disk_free),
        Code::OutOfMemory => {
            let most = small.host_memory_total - crate::room::reserve(small.host_memory_total);
            let budget = case.spec().machine.device_memory.value().and_then(|t| bytes(&t)).unwrap_or(most);
            let free = problem.what.contains("free now");
            assert!(free || smallest(case, &plan) > budget.min(most), "{problem:?}");
        }
        code => panic!("{code:?} is no lack of room: {problem:?}"),
    }
}
