//! Jobs on cards through the real programs, the cards being virtual ones: one, two and four of them, what is missing, and
//! what goes wrong on the way.

use super::lab::{Lab, PATIENCE, golden, until};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use virtual_gpu::{Fault, Library, NvmlSpec, Script};

const STEPS: u64 = 9;

fn cards(count: usize) -> Script {
    Script::with_devices(count, 2 << 30)
}

/// A job over the toy chat model in f32, evaluated and saved on the way.
fn job(lab: &Lab, more: &str) -> PathBuf {
    let (model, data) = (golden("models/llama"), lab.chat(300));
    let text = format!(
        "stage = \"sft\"\nname = \"toy\"\n[model]\npath = {model:?}\n[data]\ntrain = [{data:?}]\nevaluation = 0.05\nmax_length = 96\n\
         [optimizer]\nlearning_rate = 1e-3\n[run]\nsteps = {STEPS}\nglobal_batch = 8\nevaluate_every = 6\n\
         [snapshot]\npersist_every = 3\n[machine]\nprecision = \"f32\"\n{more}"
    );
    lab.write("job.toml", &text)
}

fn submit(lab: &Lab, job: &Path) -> String {
    lab.json(&["submit", job.to_str().unwrap()])["job"].as_str().unwrap().to_owned()
}

fn finished(lab: &Lab, more: &str) -> (String, Vec<(u64, f64)>) {
    let id = submit(lab, &job(lab, more));
    lab.wait_for(&id, &["finished"]);
    let losses = lab.losses(&id);
    assert_eq!(losses.len() as u64, STEPS, "{losses:?}");
    (id, losses)
}

fn journal(lab: &Lab, id: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(lab.home().join("runs").join(id).join("journal.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn events<'a>(journal: &'a [Value], name: &str) -> Vec<&'a Value> {
    journal.iter().filter(|entry| entry["event"] == name).collect()
}

fn assert_near(a: &[(u64, f64)], b: &[(u64, f64)], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for ((step, a), (_, b)) in a.iter().zip(b) {
        assert!((a - b).abs() < 1e-4, "{what}: step {step} has {a} and {b}");
    }
}

#[test]
fn one_two_and_four_cards_learn_what_a_cpu_learns() {
    let Some(lab) = Lab::with_cards(&cards(4)) else { return };
    let (_, cpu) = finished(&lab, "devices = [\"cpu\"]\n");
    for count in [1, 2, 4] {
        lab.set_script(&cards(count));
        let (id, losses) = finished(&lab, "");
        let plan = lab.json(&["job", &id])["plan"].clone();
        let names: Vec<String> = (0..count).map(|card| format!("cuda:{card}")).collect();
        assert_eq!((&plan["devices"], &plan["strategy"]["dp"]), (&json!(names), &json!(count)));
        assert_near(&losses, &cpu, &format!("{count} cards"));
        let end = journal(&lab, &id).pop().unwrap();
        let peaks = end["memory"]["devices"].as_array().unwrap();
        let planned = plan["memory"]["devices"][0]["bytes_peak"].as_u64().unwrap();
        let within = |peak: &Value| (1..=planned).contains(&peak["bytes_peak"].as_u64().unwrap());
        assert!(peaks.len() == count && peaks.iter().all(within), "{end}");
    }
    lab.nothing_left();
}

#[test]
fn the_small_preset_trains_on_one_two_and_four_cards() {
    let Some(lab) = Lab::with_cards(&cards(4)) else { return };
    let row = |i: usize| json!({ "text": format!("{i} and {} make {}. ", i * 3, i * 4) }).to_string() + "\n";
    let data = lab.write("text.jsonl", &(0..400).map(row).collect::<String>());
    let text = format!(
        "stage = \"pretrain\"\n[model]\npreset = \"nano\"\n[data]\ntrain = [{data:?}]\nmax_length = 48\nevaluation = 0\n\
         [run]\nsteps = 5\nglobal_batch = 4\n"
    );
    let file = lab.write("nano.toml", &text);
    let run = |count: usize, precision: &str| {
        lab.set_script(&cards(count));
        let set = format!("machine.precision=\"{precision}\"");
        let id = lab.json(&["submit", file.to_str().unwrap(), "--set", &set])["job"].as_str().unwrap().to_owned();
        lab.wait_for(&id, &["finished"]);
        let plan = lab.json(&["job", &id])["plan"].clone();
        assert_eq!(
            (plan["precision"].as_str(), plan["strategy"]["dp"].as_u64()),
            (Some(precision), Some(count as u64))
        );
        let losses = lab.losses(&id);
        assert!(losses.len() == 5 && losses[4].1 < losses[0].1 - 0.1, "{losses:?}");
        losses
    };
    let one = run(1, "f32");
    assert_near(&run(2, "f32"), &one, "two cards");
    assert_near(&run(4, "f32"), &one, "four cards");
    let rounded = run(2, "bf16");
    let far = rounded.iter().zip(&one).map(|(a, b)| (a.1 - b.1).abs()).fold(0.0, f64::max);
    assert!(far > 0.0 && far < 0.03, "{rounded:?}, in f32 {one:?}");
    lab.nothing_left();
}

#[test]
fn doctor_names_exactly_what_is_missing() {
    let checks = |lab: &Lab| -> Vec<(String, String)> {
        let found = lab.json(&["doctor"]);
        let word = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
        found["checks"].as_array().unwrap().iter().map(|c| (word(c, "name"), word(c, "state"))).collect()
    };
    let libraries = ["driver", "nvrtc", "cublaslt", "nccl", "nvml"];
    let kinds = [Library::Cuda, Library::Nvrtc, Library::CublasLt, Library::Nccl, Library::Nvml];
    for (missing, kind) in libraries.iter().zip(kinds) {
        let folder = virtual_gpu::library_folder_without(&[kind]);
        let Some(lab) = Lab::new().with_libraries(&folder, &cards(2)) else { return };
        let found = checks(&lab);
        for name in libraries {
            let state = if name == *missing { "missing" } else { "good" };
            assert!(found.contains(&(name.to_owned(), state.to_owned())), "without {missing}: {found:?}");
        }
        let usable = ["nccl", "nvml"].contains(missing);
        assert!(found.contains(&("cards".to_owned(), if usable { "good" } else { "missing" }.to_owned())), "{found:?}");
        // One card still trains without NCCL, and the CPU without anything.
        let (id, _) = finished(&lab, "");
        let device = if usable { "cuda:0" } else { "cpu" };
        let plan = lab.json(&["job", &id])["plan"].clone();
        assert_eq!(plan["devices"][0], device, "without {missing}");
        assert_eq!(plan["devices"].as_array().unwrap().len(), if *missing == "nvml" { 2 } else { 1 });
    }
}

#[test]
fn a_machine_without_any_library_says_so_and_trains_on_the_cpu() {
    let folder = virtual_gpu::library_folder_without(&Library::ALL);
    let Some(lab) = Lab::new().with_libraries(&folder, &cards(1)) else { return };
    let found = lab.json(&["doctor"]);
    let missing: Vec<&str> = found["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["state"] == "missing" && check["name"] != "logout")
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    assert_eq!(missing, ["driver", "nvrtc", "cublaslt", "nccl", "nvml", "cards"], "{found}");
    for check in found["checks"].as_array().unwrap().iter().filter(|check| check["state"] != "good") {
        assert!(check["problem"]["remedy"].as_str().is_some_and(|r| !r.is_empty()), "{check}");
    }
    let (id, _) = finished(&lab, "");
    assert_eq!(lab.json(&["job", &id])["plan"]["devices"], json!(["cpu"]));
    let problem = lab.refusal(&["plan", job(&lab, "devices = [\"cuda:0\"]\n").to_str().unwrap()]);
    assert!(problem["why"].as_str().unwrap().contains("anneal doctor"), "{problem}");
}

/// Runs a job into a fault, mends the cards once it was restarted, and waits for its end.
fn through(lab: &Lab, script: &Script, fault: Fault) -> (String, Value) {
    lab.set_script(&Script { faults: vec![fault.clone()], ..script.clone() });
    let id = submit(lab, &job(lab, ""));
    let restarted = until(PATIENCE, || {
        let journal = journal(lab, &id);
        !events(&journal, "restarted").is_empty() || !events(&journal, "failed").is_empty()
    });
    lab.set_script(script);
    assert!(restarted, "{fault:?} was never seen\n{}", lab.log(&id));
    lab.wait_for(&id, &["finished"]);
    let why = events(&journal(lab, &id), "restarted")[0]["why"].clone();
    (id, why)
}

#[test]
fn a_card_lost_at_any_point_costs_a_restart_and_no_bit() {
    let Some(lab) = Lab::with_cards(&cards(2)) else { return };
    let script = cards(2);
    let (reference, _) = finished(&lab, "");
    let expected = lab.outcome(&reference);
    for point in 0..10 {
        // From the first launches, while weights are loaded, to the middle of the run.
        let launch = 1 + point * 130;
        let fault =
            Fault::DeviceLost { device: (point % 2) as usize, launch, code: [46, 214][(point / 2 % 2) as usize] };
        let (id, why) = through(&lab, &script, fault);
        assert_eq!(why["code"], "device_lost", "point {point}: {why}");
        assert!(why["what"].as_str().unwrap().contains(&format!("cuda:{}", point % 2)), "point {point}: {why}");
        assert_eq!(lab.outcome(&id), expected, "point {point}\n{}", lab.log(&id));
    }
    lab.nothing_left();
}

#[test]
fn a_kernel_that_reaches_outside_its_memory_is_named_and_the_job_goes_on() {
    let Some(lab) = Lab::with_cards(&cards(1)) else { return };
    let (id, why) = through(&lab, &cards(1), Fault::IllegalAddress { device: 0, launch: 1000 });
    assert_eq!(why["code"], "device_fault", "{why}");
    assert!(why["why"].as_str().unwrap().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{why}");
    assert_eq!(lab.losses(&id).len() as u64, STEPS);
}

#[test]
fn a_card_without_memory_ends_the_job_with_what_to_do() {
    let Some(lab) = Lab::with_cards(&cards(1)) else { return };
    let id = {
        lab.set_script(&Script { faults: vec![Fault::OutOfMemory { device: 0, allocation: 30 }], ..cards(1) });
        submit(&lab, &job(&lab, ""))
    };
    lab.wait_for(&id, &["failed"]);
    let journal = journal(&lab, &id);
    let problem = &events(&journal, "failed")[0]["problem"];
    assert_eq!(problem["code"], "out_of_memory", "{problem}");
    assert!(problem["remedy"].as_str().unwrap().contains("close other programs"), "{problem}");
    lab.set_script(&cards(1));
    lab.json(&["resume", &id]);
    lab.wait_for(&id, &["finished"]);
}

#[test]
fn what_nvml_says_is_shown_and_what_it_lacks_is_not_zero() {
    let mut script = cards(2);
    script.devices[0].nvml = NvmlSpec {
        temperature: 91,
        // Thermal slowdown by hardware.
        throttle_reasons: 0x40,
        ecc_uncorrected: 3,
        unsupported: vec!["nvmlDeviceGetFanSpeed_v2".into(), "nvmlDeviceGetPowerUsage".into()],
        ..NvmlSpec::default()
    };
    let Some(lab) = Lab::with_cards(&script) else { return };
    let sample = lab.json(&["machine"]);
    let card = &sample["gpus"][0];
    assert_eq!((&card["temperature"], &card["throttle"]), (&json!(91), &json!(["thermal"])), "{card}");
    assert_eq!((&card["ecc"]["uncorrected"], &card["fan"], &card["power"]), (&json!(3), &json!(null), &json!(null)));
    assert_eq!((&sample["gpus"][1]["fan"], &sample["gpus"][1]["throttle"]), (&json!(30), &json!([])));
    script.faults = vec![Fault::NvmlHang { call: "nvmlDeviceGetTemperature".into() }];
    lab.set_script(&script);
    let start = std::time::Instant::now();
    let silent = lab.json(&["machine"]);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    assert_eq!((&silent["gpus"], &silent["problem"]["code"]), (&json!([]), &json!("device_unavailable")), "{silent}");
}

/// The script for machines with a card, every part of it, made small: what is carried there has been run before.
#[test]
fn the_script_for_real_cards_passes_on_virtual_ones() {
    let Some(lab) = Lab::with_cards(&Script::with_devices(1, 2 << 30)) else { return };
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let programs = super::lab::binary("anneal").parent().unwrap().to_owned();
    let out = lab.path("device");
    let mut script = std::process::Command::new(root.join("tests/device/run.sh"));
    script.arg(&programs).arg(&out).envs(lab.environment().iter().map(|(name, value)| (name, value)));
    for (name, value) in [
        ("VIRTUAL", "1"),
        ("SHAPE", "nano"),
        ("BATCH", "1"),
        ("ROWS", "1"),
        ("STEPS", "1"),
        ("OPERATIONS", "rms_norm"),
        ("GOLDEN", "ranks::tests::cards_that"),
    ] {
        script.env(format!("ANNEAL_DEVICE_{name}"), value);
    }
    let output = script.output().unwrap();
    let words = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&words));
    let report: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    let parts: Vec<&str> = report["parts"].as_array().unwrap().iter().map(|p| p["result"].as_str().unwrap()).collect();
    assert_eq!(parts, ["passed"; 5], "{report}");
    for precision in ["f32", "bf16"] {
        let memory = &report["memory"][precision];
        assert!(memory["device_bytes_used"].as_u64() >= memory["device_bytes_peak"].as_u64(), "{memory}");
    }
    assert_eq!(report["speed"].as_array().unwrap().len(), 2, "{report}");
}
