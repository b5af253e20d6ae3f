//! The hostile collection (`tests/corpus/hostile`, `tests/golden/bad`): each item ends as its expectations say, through the
//! real command line, in time, in little memory, and with nothing written elsewhere.
//!
//! Not here: damaged checkpoints (`store`), requests to an API, of which there is none, single weight files that must be
//! accepted (`formats::safetensors`).

use super::lab::{Lab, golden, words};
use regex::RegexBuilder;
use serde::Deserialize;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// An unoptimised build on a busy machine is that much slower than what the expectations are about.
const SLOWNESS: u32 = 4;

#[derive(Deserialize)]
struct Expectations {
    items: Vec<Item>,
}

/// What must become of an item.
#[derive(Deserialize)]
pub struct Item {
    /// Its name in the collection.
    pub id: String,
    path: String,
    /// What it is dropped as.
    pub drop_as: String,
    /// reject, accept, accept_as_text, reject_or_bounded, reject_or_warn.
    pub verdict: String,
    #[serde(default)]
    message_must_match: Vec<String>,
    #[serde(default)]
    message_must_not_match: Vec<String>,
    #[serde(default)]
    must_not_exist: Vec<PathBuf>,
    records: Option<u64>,
    #[serde(default)]
    unpack: bool,
    max_seconds: Option<u64>,
    max_extra_rss_mb: Option<u64>,
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/hostile")
}

/// The items that are dropped as files or folders.
pub fn items() -> Vec<Item> {
    let text = std::fs::read_to_string(corpus().join("expectations.json")).unwrap();
    let all: Expectations = serde_json::from_str(&text).unwrap();
    let dropped = ["model folder", "model file", "data set file", "data set folder"];
    all.items.into_iter().filter(|item| dropped.iter().any(|kind| item.drop_as.starts_with(kind))).collect()
}

impl Item {
    /// Where it lies, unpacked into `room` where it is packed.
    pub fn place(&self, room: &Path) -> PathBuf {
        let path = corpus().join(&self.path);
        if !self.unpack {
            return path;
        }
        std::fs::create_dir_all(room).unwrap();
        assert!(Command::new("tar").arg("-xf").arg(&path).current_dir(room).status().unwrap().success());
        std::fs::read_dir(room).unwrap().next().unwrap().unwrap().path()
    }

    /// Holds what was said against the patterns.
    pub fn check_words(&self, said: &str) {
        for pattern in &self.message_must_match {
            assert!(matches(pattern, said), "{}: nothing matches {pattern}: {said}", self.id);
        }
        for pattern in &self.message_must_not_match {
            assert!(!matches(pattern, said), "{}: {pattern} is matched: {said}", self.id);
        }
        assert!(!said.contains("panicked") && !said.contains("signal"), "{}: {said}", self.id);
        for path in &self.must_not_exist {
            assert!(!path.exists(), "{}: {} was made", self.id, path.display());
        }
    }

    /// Items that show only when the model is used.
    fn is_used(&self) -> bool {
        self.drop_as.contains("then")
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    RegexBuilder::new(pattern).case_insensitive(true).build().unwrap().is_match(text)
}

#[test]
fn every_hostile_item_ends_as_expected() {
    let lab = Lab::new();
    let before = state(&corpus());
    for item in items() {
        let path = item.place(&lab.path(&item.id));
        let run = watched(&lab, &item, &path);
        let most = Duration::from_secs(item.max_seconds.unwrap_or(5)) * SLOWNESS;
        assert!(run.took < most, "{}: {:?}", item.id, run.took);
        let (peak, most) = (run.peak >> 20, item.max_extra_rss_mb.unwrap_or(256) + run.usual);
        assert!(peak <= most, "{}: {peak} MiB, at most {most}", item.id);
        verdict(&item, &run.output);
    }
    assert_eq!(state(&corpus()), before, "an input was changed");
    // What came before leaves everything as it was.
    let model = golden("models/llama");
    assert_eq!(lab.json(&["inspect", model.to_str().unwrap()])[0]["kind"], "model");
}

fn verdict(item: &Item, output: &Output) {
    let answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{}: {e}: {}", item.id, words(output)));
    let (facts, problem) = match item.is_used() {
        true => (Value::Null, answer["problem"].clone()),
        false => (answer[0]["dataset"].clone(), answer[0]["problem"].clone()),
    };
    let refused = output.status.code() == Some(3) && problem.is_object();
    println!("{} {}: {}", item.id, if refused { "refused" } else { "taken" }, problem["what"]);
    match item.verdict.as_str() {
        "reject" => {
            assert!(refused, "{}: {answer}", item.id);
            item.check_words(&problem.to_string());
        }
        "accept" | "accept_as_text" => {
            assert!(!refused, "{}: {answer}", item.id);
            if let Some(records) = item.records {
                assert_eq!(facts["usable_rows"], json!(records), "{}: {facts}", item.id);
            }
        }
        "reject_or_bounded" if refused => item.check_words(&problem.to_string()),
        "reject_or_bounded" => {}
        // What is left out is named among the facts.
        "reject_or_warn" => item.check_words(&answer.to_string()),
        other => panic!("{}: {other}", item.id),
    }
}

/// What a run cost.
struct Run {
    output: Output,
    took: Duration,
    /// Most resident bytes of `anneal` and its child at once.
    peak: u64,
    /// MiB that they take for anything at all.
    usual: u64,
}

fn watched(lab: &Lab, item: &Item, path: &Path) -> Run {
    let chat = lab.chat(1);
    let path = path.to_str().unwrap();
    let probe = lab.write("probe.jsonl", &json!({"text": probe()}).to_string());
    let data = if item.id == "D21" { probe } else { chat };
    let args = match item.is_used() {
        true => vec!["preview", "--model", path, "--data", data.to_str().unwrap(), "--json"],
        false => vec!["inspect", path, "--json"],
    };
    let start = Instant::now();
    let child = lab.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (id, done) = (child.id(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let peak = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                peak = peak.max(resident(id));
                std::thread::sleep(Duration::from_millis(3));
            }
            peak
        });
        let output = child.wait_with_output().unwrap();
        let took = start.elapsed();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        Run { output, took, peak: peak.join().unwrap(), usual: 96 }
    })
}

fn probe() -> String {
    std::fs::read_to_string(corpus().join("D21_tok_redos/probe.txt")).unwrap()
}

/// Resident bytes of a process and its children.
fn resident(id: u32) -> u64 {
    let kib = |id: u32| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: u64 = children
        .flat_map(|all| all.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<u32>>())
        .map(kib)
        .sum();
    (kib(id) + children) * 1024
}

/// Names, lengths and times of all files below a folder.
fn state(folder: &Path) -> Vec<(PathBuf, u64, i64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            found.extend(state(&path));
        } else {
            found.push((path, meta.len(), meta.mtime_nsec() + meta.mtime() * 1_000_000_000));
        }
    }
    found.sort();
    found
}

#[test]
fn bad_models_of_the_golden_set_are_refused_with_their_reason() {
    let lab = Lab::new();
    let refused = [
        ("llama_bin_pickle_exec", "code_in_file"),
        ("shard_missing", "file_unreadable"),
        ("shard_path_traversal", "path_outside"),
        ("shard_absolute", "path_outside"),
        ("wrong_shape", "tensor_mismatch"),
    ];
    for (name, code) in refused {
        let output = lab.run(&["inspect", golden("bad").join(name).to_str().unwrap(), "--json"]);
        let items: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(items[0]["problem"]["code"], json!(code), "{name}: {items}");
    }
    // One weight that is no number is not seen in a header: training stops on it with its own reason.
    let nan = golden("bad/nan_weight");
    assert_eq!(lab.json(&["inspect", nan.to_str().unwrap()])[0]["kind"], "model");
}

#[test]
fn a_job_with_a_value_that_cannot_be_is_refused_before_anything_is_made() {
    let lab = Lab::new();
    let text = std::fs::read_to_string(corpus().join("D17_jobspec_mutations.json")).unwrap();
    let cases: Value = serde_json::from_str(&text).unwrap();
    let job = lab.write(
        "job.toml",
        &format!(
            "stage = \"sft\"\n[model]\npath = {:?}\n[data]\ntrain = [{:?}]\nmax_length = 32\n[run]\nsteps = 10\nglobal_batch = 2\n",
            corpus().join("D_ok_model"),
            corpus().join("ok/crlf_and_blank.jsonl")
        ),
    );
    for case in cases["cases"].as_array().unwrap() {
        let (key, value) = case["set"].as_object().unwrap().iter().next().unwrap();
        let set = format!("{key}={}", setting(value));
        let output = lab.run(&["train", job.to_str().unwrap(), "--set", &set, "--json"]);
        assert!(matches!(output.status.code(), Some(2 | 3)), "{set:.60}: {}", words(&output));
        let said = words(&output);
        for pattern in case["message_must_match"].as_array().unwrap() {
            assert!(matches(pattern.as_str().unwrap(), &said), "{set:.60}: {said}");
        }
    }
    assert_eq!(lab.json(&["jobs"]), json!([]));
}

/// A value as `--set` takes it: TOML.
fn setting(value: &Value) -> String {
    match value {
        Value::Object(all) => {
            let pairs: Vec<String> = all.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[test]
fn a_damaged_history_is_kept_aside_and_said() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.home()).unwrap();
    let damaged = std::fs::read(corpus().join("D39_history_damaged.sqlite")).unwrap();
    std::fs::write(lab.home().join("history.sqlite3"), &damaged).unwrap();
    let output = lab.run(&["jobs"]);
    assert!(output.status.success(), "{}", words(&output));
    let said = words(&output);
    for pattern in ["history|database", "damaged|corrupt|malformed", "kept|saved|moved|renamed"] {
        assert!(matches(pattern, &said), "{pattern}: {said}");
    }
    let aside = std::fs::read_dir(lab.home()).unwrap().flatten();
    let mut aside = aside.filter(|entry| entry.file_name().to_string_lossy().starts_with("history-damaged"));
    let kept = aside.next().map(|folder| std::fs::read(folder.path().join("history.sqlite3")).unwrap());
    assert!(kept == Some(damaged), "the damaged file is gone");
}
