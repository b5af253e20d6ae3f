//! The whole path once: facts, preview, plan, training, history, evaluation, generation, export.

use super::lab::{Lab, events, golden, words};
use serde_json::json;

#[test]
fn from_a_model_and_a_data_set_to_a_trained_model() {
    let lab = Lab::new();
    let job = lab.job(40, "");
    let (job, data) = (job.to_str().unwrap(), lab.path("chat.jsonl"));
    let model = golden("models/llama");
    let (model, data) = (model.to_str().unwrap(), data.to_str().unwrap());

    let facts = lab.json(&["inspect", model, data]);
    assert_eq!(facts[0]["model"]["parameters"], json!(117_056));
    assert_eq!(
        (&facts[1]["dataset"]["format"], &facts[1]["dataset"]["usable_rows"]),
        (&json!("messages"), &json!(300))
    );

    let preview = lab.json(&["preview", "--model", model, "--data", data, "--row", "2"]);
    let trained = |p: &serde_json::Value| -> String {
        let tokens = p["tokens"].as_array().unwrap();
        tokens.iter().filter(|t| t["trained"] == json!(true)).map(|t| t["text"].as_str().unwrap()).collect()
    };
    assert_eq!(trained(&preview), "8<|im_end|>");

    let plan = lab.json(&["plan", job]);
    assert_eq!((&plan["run"]["steps"], &plan["strategy"]["dp"]), (&json!(40), &json!(1)));

    let before = lab.json(&["evaluate", "--model", model, "--data", data])["loss"].as_f64().unwrap();
    let output = lab.run(&["train", job, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    let seen = events(&output);
    let steps: Vec<u64> = seen.iter().filter(|e| e["event"] == "step").map(|e| e["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=40).collect::<Vec<_>>());
    let end = seen.last().unwrap();
    assert_eq!(end["event"], "finished");
    let (peak, planned) = (&end["memory"]["devices"][0]["bytes_peak"], &plan["memory"]["devices"][0]["bytes_peak"]);
    assert!(peak.as_u64().unwrap() <= planned.as_u64().unwrap(), "{peak} bytes used, {planned} planned");
    let id = end["job"].as_str().unwrap();

    let record = lab.json(&["job", id]);
    assert_eq!((&record["state"], &record["steps"], &record["name"]), (&json!("finished"), &json!(40), &json!("toy")));
    assert_eq!(lab.losses(id).len(), 40);
    let checkpoint = lab.checkpoint(id);
    let checkpoint = checkpoint.to_str().unwrap();
    let after = lab.json(&["evaluate", "--model", checkpoint, "--data", data])["loss"].as_f64().unwrap();
    assert!(after < before - 0.5, "evaluation loss {before} before, {after} after");

    let messages = lab.write("ask.json", r#"[{"role":"user","content":"1 + 7?"}]"#);
    let said =
        lab.json(&["generate", "--model", checkpoint, "--messages", messages.to_str().unwrap(), "--max-tokens", "8"]);
    assert!(said["tokens"].as_u64().unwrap() >= 1);

    let out = lab.path("merged");
    let done = lab.json(&["export", "--from", checkpoint, "--to", out.to_str().unwrap(), "--format", "safetensors"]);
    assert!(done["max_logit_difference"].as_f64().unwrap() <= 1e-5, "{done}");
    let again = lab.json(&["evaluate", "--model", out.to_str().unwrap(), "--data", data])["loss"].as_f64().unwrap();
    assert!((again - after).abs() < 1e-6);
    lab.nothing_left();
}

#[test]
fn an_adapter_is_trained_merged_and_taken_away() {
    let lab = Lab::new();
    let job = lab.job(30, "[model.adapter]\nkind = \"lora\"\nrank = 4\n");
    let output = lab.run(&["train", job.to_str().unwrap(), "--set", "optimizer.learning_rate=1e-2", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    let id = events(&output).last().unwrap()["job"].as_str().unwrap().to_owned();
    let checkpoint = lab.checkpoint(&id);
    assert!(checkpoint.join("adapter_model.safetensors").exists() && checkpoint.join("adapter_config.json").exists());
    let data = lab.path("chat.jsonl");
    let loss = |model: &std::path::Path| {
        lab.json(&["evaluate", "--model", model.to_str().unwrap(), "--data", data.to_str().unwrap()])["loss"]
            .as_f64()
            .unwrap()
    };
    let merged = lab.path("merged");
    let args =
        ["export", "--from", checkpoint.to_str().unwrap(), "--to", merged.to_str().unwrap(), "--format", "safetensors"];
    assert!(lab.json(&args)["max_logit_difference"].as_f64().unwrap() <= 1e-3);
    assert!(loss(&merged) < loss(&golden("models/llama")) - 0.3);
    let adapter = lab.path("adapter");
    lab.json(&[
        "export",
        "--from",
        checkpoint.to_str().unwrap(),
        "--to",
        adapter.to_str().unwrap(),
        "--format",
        "adapter",
    ]);
    let base = golden("models/llama");
    let args = [
        "evaluate",
        "--model",
        base.to_str().unwrap(),
        "--adapter",
        adapter.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
    ];
    let beside = lab.json(&args)["loss"].as_f64().unwrap();
    assert!((beside - loss(&merged)).abs() < 1e-4);
}

#[test]
fn pause_resume_stop_and_resume_change_nothing_in_the_result() {
    let lab = Lab::new();
    let job = lab.job(400, "");
    let job = job.to_str().unwrap();
    let straight = lab.json(&["submit", job])["job"].as_str().unwrap().to_owned();
    lab.wait_for(&straight, &["finished"]);
    let id = lab.json(&["submit", job])["job"].as_str().unwrap().to_owned();
    lab.wait_for(&id, &["running"]);
    lab.json(&["pause", &id]);
    lab.wait_for(&id, &["paused"]);
    lab.json(&["resume", &id]);
    lab.wait_for(&id, &["running"]);
    lab.json(&["stop", &id]);
    assert_eq!(lab.wait_for(&id, &["stopped", "finished"]), "stopped");
    lab.json(&["resume", &id]);
    lab.wait_for(&id, &["finished"]);
    assert_eq!(lab.outcome(&id), lab.outcome(&straight));
    lab.nothing_left();
}

#[test]
fn a_fork_starts_where_a_kept_step_ended() {
    let lab = Lab::new();
    let job = lab.job(40, "keep = 50\n");
    let id = lab.json(&["submit", job.to_str().unwrap()])["job"].as_str().unwrap().to_owned();
    lab.wait_for(&id, &["finished"]);
    let fork = lab.json(&["fork", &id, "--step", "14", "--set", "name=forked"])["job"].as_str().unwrap().to_owned();
    lab.wait_for(&fork, &["finished"]);
    assert_eq!(lab.outcome(&fork).1, lab.outcome(&id).1);
    assert_eq!(lab.losses(&fork), lab.losses(&id)[14..]);
    let difference = lab.json(&["compare", &id, &fork]);
    assert_eq!(difference["spec"][0]["key"], "name");
}

#[test]
fn two_jobs_for_one_device_run_one_after_the_other() {
    let lab = Lab::new();
    let job = lab.job(60, "");
    let job = job.to_str().unwrap();
    let first = lab.json(&["submit", job])["job"].as_str().unwrap().to_owned();
    let second = lab.json(&["submit", job])["job"].as_str().unwrap().to_owned();
    lab.wait_for(&second, &["finished"]);
    lab.wait_for(&first, &["finished"]);
    let times = |id: &str, event: &str| -> i64 {
        let text = std::fs::read_to_string(lab.home().join("runs").join(id).join("journal.jsonl")).unwrap();
        let line =
            text.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()).find(|l| l["event"] == event);
        line.unwrap()["at_ms"].as_i64().unwrap()
    };
    assert!(times(&second, "started") >= times(&first, "finished"));
    lab.nothing_left();
}
