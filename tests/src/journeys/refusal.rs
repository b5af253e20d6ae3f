//! What is refused, and how: by code, with a sentence, before anything starts.

use super::lab::{Lab, PATIENCE, golden, until};
use serde_json::json;

#[test]
fn commands_of_a_later_version_are_refused_by_name() {
    let lab = Lab::new();
    for command in ["serve", "doctor", "pin", "label"] {
        let problem = lab.refusal(&[command, "x"]);
        assert_eq!(problem["code"], "not_supported");
        assert!(problem["what"].as_str().unwrap().contains(command));
    }
}

#[test]
fn a_job_that_does_not_fit_is_refused_with_numbers_before_it_starts() {
    let lab = Lab::new();
    let job = lab.job(10, "[machine]\ndevice_memory = \"1MB\"\n");
    let problem = lab.refusal(&["train", job.to_str().unwrap()]);
    assert_eq!(problem["code"], "out_of_memory");
    let text = problem.to_string();
    assert!(text.contains("MB") && !problem["remedy"].as_str().unwrap().is_empty(), "{text}");
    assert_eq!(lab.json(&["jobs"]).as_array().unwrap().len(), 0);
}

#[test]
fn what_cannot_be_read_is_refused_by_its_kind_and_place() {
    let lab = Lab::new();
    let pickle = golden("bad/llama_bin_pickle_exec");
    let cases = [
        (lab.write("empty.jsonl", ""), "file_empty"),
        (lab.write("broken.jsonl", "{\"messages\": [}\n{\"messages\": 3}\n"), "no_usable_rows"),
        (lab.path("nowhere.jsonl"), "file_unreadable"),
        (pickle, "code_in_file"),
    ];
    for (path, code) in cases {
        let output = lab.run(&["inspect", path.to_str().unwrap(), "--json"]);
        assert_eq!(output.status.code(), Some(3), "{}", path.display());
        let items: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(items[0]["problem"]["code"], json!(code), "{items}");
    }
}

#[test]
fn raw_text_for_chat_tuning_says_what_to_use_instead() {
    let lab = Lab::new();
    let job = lab.job(10, "");
    lab.write("chat.jsonl", "{\"text\": \"once upon a time\"}\n{\"text\": \"there was\"}\n");
    let problem = lab.refusal(&["plan", job.to_str().unwrap()]);
    assert_eq!(problem["code"], "layout_unfit");
    assert!(problem["remedy"].as_str().unwrap().contains("pretrain"), "{problem}");
}

#[test]
fn a_misspelt_setting_is_named_with_its_line() {
    let lab = Lab::new();
    let job = lab.job(10, "kep = 3\n");
    let problem = lab.refusal(&["train", job.to_str().unwrap()]);
    assert_eq!(problem["code"], "job_invalid");
    assert!(problem["why"].as_str().unwrap().contains("kep") && problem["place"]["line"].is_u64(), "{problem}");
}

#[test]
fn a_job_whose_checkpoints_are_all_gone_never_begins_again_silently() {
    let lab = Lab::new();
    let id = lab.json(&["submit", lab.job(5000, "").to_str().unwrap()])["job"].as_str().unwrap().to_owned();
    assert!(until(PATIENCE, || lab.json(&["job", &id])["steps"].as_u64() >= Some(8)), "{}", lab.log(&id));
    lab.json(&["stop", &id]);
    lab.wait_for(&id, &["stopped"]);
    let checkpoints = lab.home().join("runs").join(&id).join("checkpoints");
    for folder in std::fs::read_dir(&checkpoints).unwrap().flatten() {
        std::fs::remove_dir_all(folder.path()).unwrap();
    }
    assert_eq!(lab.refusal(&["resume", &id])["code"], "checkpoint_missing");
}

#[test]
fn lost_tokens_are_made_again_where_the_data_is_unchanged() {
    let lab = Lab::new();
    let id = lab.json(&["submit", lab.job(300, "").to_str().unwrap()])["job"].as_str().unwrap().to_owned();
    lab.wait_for(&id, &["running"]);
    lab.json(&["stop", &id]);
    lab.wait_for(&id, &["stopped"]);
    std::fs::remove_dir_all(lab.home().join("tokens")).unwrap();
    lab.json(&["resume", &id]);
    lab.wait_for(&id, &["finished"]);
    assert_eq!(lab.losses(&id).len(), 300);
}

#[test]
fn a_stored_plan_of_another_job_is_refused_by_its_first_difference() {
    let lab = Lab::new();
    let job = lab.job(10, "");
    let job = job.to_str().unwrap();
    let plan = lab.write("plan.json", &lab.json(&["plan", job]).to_string());
    let plan = plan.to_str().unwrap();
    let problem = lab.refusal(&["train", job, "--set", "run.steps=9", "--plan", plan]);
    assert_eq!((&problem["code"], &problem["place"]["field"]), (&json!("setting_invalid"), &json!("schedule")));
    assert!(lab.run(&["train", job, "--plan", plan]).status.success());
}
