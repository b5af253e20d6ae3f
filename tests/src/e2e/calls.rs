//! The whole path through the window's commands, as the page calls them, and a crash of the window in the middle.
//!
//! Not here: what the page shows of it (`places`).

use super::desk::{Desk, PATIENCE, missing};
use crate::journeys::lab::golden;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Copies the toy model to a folder with a name that addresses and shells stumble over.
pub fn model_with_a_hard_name(desk: &Desk) -> std::path::PathBuf {
    let to = desk.lab.path("my model é");
    std::fs::create_dir_all(&to).unwrap();
    for file in std::fs::read_dir(golden("models/llama")).unwrap().flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    to
}

async fn good(desk: &Desk, command: &str, words: Value) -> Value {
    let (done, answer) = desk.call(command, words).await;
    assert!(done, "{command}: {answer}");
    answer
}

/// Waits until a job is in this state.
async fn until_state(desk: &Desk, id: &str, state: &str) {
    let begun = Instant::now();
    loop {
        let now = good(desk, "job", json!({ "id": id })).await["state"].clone();
        if now == json!(state) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{id} is {now}, not {state}\n{}", desk.lab.log(id));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A job over the toy model that takes about this many steps.
pub fn job(model: &Path, data: &Path, steps: u64) -> Value {
    json!({
        "stage": "sft", "name": "by the window", "model": { "path": model }, "data": { "train": [data], "max_length": 96 },
        "run": { "steps": steps, "global_batch": 4, "evaluate_every": 20 }, "snapshot": { "persist_every": 50 },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_a_window_that_was_killed() {
    if missing() {
        return;
    }
    let mut desk = Desk::with_window().await;
    good(&desk, "startup", json!({})).await;
    let (model, data) = (model_with_a_hard_name(&desk), desk.lab.chat(300));
    let spec = job(&model, &data, 20_000);
    let plan = json!({ "spec": spec, "on_line": "__CHANNEL__:1" });
    let (done, refused) = desk.call("plan", plan.clone()).await;
    assert!(!done && refused["code"] == json!("path_outside"), "{refused}");
    let facts = good(&desk, "inspect", json!({ "paths": [model, data] })).await;
    assert_eq!((&facts[0]["kind"], &facts[1]["kind"]), (&json!("model"), &json!("dataset")));
    let preview = good(&desk, "preview", json!({ "spec": spec, "row": 2 })).await;
    assert!(preview["tokens"].as_array().is_some_and(|tokens| tokens.len() > 5), "{preview}");
    let planned = good(&desk, "plan", plan).await;
    assert_eq!(planned["run"]["steps"], json!(20_000));
    let id = good(&desk, "submit", json!({ "spec": spec })).await.as_str().unwrap().to_owned();
    let steps = first_steps(&desk, &id).await;
    assert!(steps.iter().any(|entry| entry["event"] == json!("step")), "{steps:?}");

    desk.crash();
    desk.open(&[]).await;
    good(&desk, "startup", json!({})).await;
    let alive = good(&desk, "alive", json!({})).await;
    assert_eq!((alive[0]["id"].as_str(), alive[0]["state"].as_str()), (Some(id.as_str()), Some("running")), "{alive}");
    let state = good(&desk, "request", json!({ "id": id, "word": "pause" })).await;
    assert_eq!(state, json!("paused"));
    let state = good(&desk, "request", json!({ "id": id, "word": "resume" })).await;
    assert_eq!(state, json!("running"));
    let state = good(&desk, "request", json!({ "id": id, "word": "stop" })).await;
    assert_eq!(state, json!("stopped"));
    look_back(&desk, &id).await;
    desk.lab.wait_for(&id, &["stopped"]);
}

/// Follows a run until its first step.
async fn first_steps(desk: &Desk, id: &str) -> Vec<Value> {
    let follow = format!(
        "const entries = [];\
         const each = window.__TAURI_INTERNALS__.transformCallback((m) => {{\
           entries.push(...(m.message?.entries ?? []));\
           if (entries.some((e) => e.event === 'step')) {{\
             window.__TAURI_INTERNALS__.invoke('cancel', {{ token: 1 }}); done(entries);\
           }}\
         }});\
         window.__TAURI_INTERNALS__.invoke('follow', {{ id: '{id}', token: 1, on_batch: '__CHANNEL__:' + each }})\
           .catch((e) => done([e]));"
    );
    desk.wait_script(&follow).await.as_array().cloned().unwrap_or_default()
}

/// History, curve, log, comparison, generation, trash and back.
async fn look_back(desk: &Desk, id: &str) {
    until_state(desk, id, "stopped").await;
    let query = json!({ "search": "window", "sort": "tokens", "descending": true, "offset": 0, "count": 10 });
    let page = good(desk, "jobs", json!({ "query": query })).await;
    assert_eq!((&page["total"], &page["rows"][0]["id"]), (&json!(1), &json!(id)));
    let part = json!({ "axis": "step", "from": null, "to": null, "points": 100 });
    let curve = good(desk, "curve", json!({ "id": id, "query": part })).await;
    let places = curve["x"].as_array().unwrap().len();
    assert!(places > 0 && places <= 100 && curve["loss"].as_array().unwrap().len() == places, "{curve}");
    let kinds: Vec<&str> = curve["marks"].as_array().unwrap().iter().filter_map(|m| m["kind"].as_str()).collect();
    assert!(["paused", "resumed", "stopped"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    let log = good(desk, "log", json!({ "id": id, "lines": 5 })).await;
    assert_eq!(log["lines"].as_array().map(Vec::len), Some(5), "{log}");
    let pair = good(desk, "compare", json!({ "a": id, "b": id })).await;
    assert_eq!(pair["spec"], json!([]));
    let kept = good(desk, "checkpoints", json!({ "id": id, "verify": true })).await;
    let newest = kept.as_array().unwrap().last().unwrap();
    assert_eq!(newest["verified"], json!(true), "{kept}");
    let query = json!({
        "model": newest["path"], "adapter": null, "messages": [{ "role": "user", "content": "1 + 7?" }], "prompt": null,
        "max_tokens": 8, "temperature": 0.0, "seed": 1,
    });
    let said = good(desk, "generate", json!({ "query": query, "token": 2, "on_text": "__CHANNEL__:2" })).await;
    assert!(said["tokens"].as_u64().is_some_and(|tokens| tokens >= 1), "{said}");
    good(desk, "remove", json!({ "id": id })).await;
    assert!(!desk.call("job", json!({ "id": id })).await.0);
    good(desk, "restore", json!({ "id": id })).await;
    good(desk, "job", json!({ "id": id })).await;
}
