//! Jobs on cards: which are taken, how the rows are shared, what is refused.

use crate::tests::{Case, desktop, llama_135m};
use protocol::facts::{CardFacts, DeviceFacts, MachineFacts};
use protocol::job::Precision;
use protocol::{Code, Problem};

fn card(index: usize, model: &str, capability: u32) -> DeviceFacts {
    DeviceFacts {
        name: format!("cuda:{index}"),
        memory_total: 24 << 30,
        memory_free: 23 << 30,
        card: Some(CardFacts {
            model: model.into(),
            compute_capability: [capability, 0],
            pci: format!("0000:0{index}:00.0"),
            gemm_gflops: 30_000.0,
            gemm_gflops_bf16: 120_000.0,
            memory_gb_per_second: 900.0,
        }),
    }
}

fn workstation(cards: Vec<DeviceFacts>, nccl: bool) -> MachineFacts {
    let devices = desktop().devices.into_iter().chain(cards).collect();
    MachineFacts { devices, nccl, ..desktop() }
}

fn case(cards: usize, nccl: bool) -> Case {
    Case::trained(llama_135m()).on(workstation((0..cards).map(|i| card(i, "RTX 4090", 8)).collect(), nccl))
}

fn reason(plan: &protocol::Plan, field: &str) -> String {
    let found = plan.reasons.iter().find(|reason| reason.field == field);
    found.map(|reason| format!("{}: {}", reason.value, reason.why)).unwrap_or_default()
}

#[test]
fn all_cards_of_one_kind_share_the_rows_of_a_step() {
    let one = case(1, false).plan().unwrap();
    assert_eq!((one.devices.as_slice(), one.precision), (&["cuda:0".to_owned()][..], Precision::Bf16));
    let four = case(4, true).set("run.global_batch=16").plan().unwrap();
    assert_eq!(four.devices, ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]);
    assert_eq!((four.strategy.dp, four.strategy.world_size(), four.memory.devices.len()), (4, 4, 4));
    assert_eq!((four.micro_batch, four.gradient_accumulation), (4, 1));
    assert!(four.memory.devices.iter().all(|device| device.bytes_total < 24 << 30));
    assert!(reason(&four, "machine.strategy").starts_with("dp = 4"), "{:?}", four.reasons);
    let large = |case: Case| case.set("run.global_batch=400").plan().unwrap();
    let (alone, four) = (large(case(4, true).set("machine.devices=[\"cuda:2\"]")), large(case(4, true)));
    assert!(alone.predicted.step_ms > 2.0 * four.predicted.step_ms, "{:?}, {:?}", alone.predicted, four.predicted);
    assert_eq!(alone.devices, ["cuda:2"]);
}

#[test]
fn cards_are_as_many_as_there_are_rows_libraries_and_likeness_for() {
    let few = case(4, true).set("run.global_batch=3").plan().unwrap();
    assert_eq!((few.devices.len(), reason(&few, "machine.devices").contains("no more rows")), (3, true));
    let without = case(4, false).plan().unwrap();
    assert_eq!((without.devices.len(), reason(&without, "machine.devices").contains("NCCL")), (1, true));
    let mixed = vec![card(0, "A", 8), card(1, "B", 9), card(2, "A", 8)];
    let mixed = Case::trained(llama_135m()).on(workstation(mixed, true));
    assert_eq!(mixed.plan().unwrap().devices, ["cuda:0", "cuda:2"]);
    let asked = case(4, true).set("machine.strategy={ dp = 2 }").plan().unwrap();
    assert_eq!(asked.devices, ["cuda:0", "cuda:1"]);
}

#[test]
fn an_old_card_computes_in_f32_and_the_cpu_stays_a_choice() {
    let old = || Case::trained(llama_135m()).on(workstation(vec![card(0, "GTX", 7)], true));
    assert_eq!(old().plan().unwrap().precision, Precision::F32);
    let problem = old().set("machine.precision=\"bf16\"").refusal();
    assert_eq!((problem.code, problem.why.contains("7.0")), (Code::SettingInvalid, true), "{problem:?}");
    let cpu = case(2, true).set("machine.devices=[\"cpu\"]").plan().unwrap();
    assert_eq!((cpu.devices.as_slice(), cpu.precision), (&["cpu".to_owned()][..], Precision::F32));
}

#[test]
fn what_cards_cannot_do_together_is_refused_with_a_way_out() {
    let refused = |cards, nccl, changes: &[&str]| -> Problem {
        changes.iter().fold(case(cards, nccl), |case, change| case.set(change)).refusal()
    };
    let both = "machine.devices=[\"cuda:0\", \"cuda:1\"]";
    let cases = [
        (refused(2, false, &[both]), Code::NotSupported, "NCCL"),
        (refused(1, true, &[both]), Code::NotFound, "cuda:1"),
        (refused(0, true, &["machine.devices=[\"cuda:0\"]"]), Code::NotFound, "cuda:0"),
        (refused(2, true, &["machine.devices=[\"cuda:0\", \"cpu\"]"]), Code::SettingInvalid, "CPU"),
        (refused(2, true, &["machine.devices=[\"cuda:0\", \"cuda:0\"]"]), Code::SettingInvalid, "twice"),
        (refused(2, true, &[both, "machine.strategy={ dp = 1 }"]), Code::SettingInvalid, "1 ranks"),
        (refused(2, true, &["machine.strategy={ dp = 2, zero = 2 }"]), Code::NotSupported, "ZeRO"),
    ];
    for (problem, code, named) in cases {
        assert_eq!(problem.code, code, "{problem:?}");
        assert!(problem.what.contains(named) && !problem.remedy.is_empty(), "{problem:?}");
    }
    assert!(refused(0, true, &["machine.devices=[\"cuda:0\"]"]).why.contains("anneal doctor"));
}

#[test]
fn a_card_that_others_fill_refuses_and_names_the_card() {
    let mut case = case(2, true);
    case.machine.devices[2].memory_free = 1 << 20;
    let problem = case.refusal();
    assert_eq!(problem.code, Code::OutOfMemory);
    assert!(problem.what.contains("cuda:1") && problem.what.contains("1 MB are free"), "{problem:?}");
}
