//! What is refused, and how: by code, with a sentence, before anything starts.

use super::lab::{Lab, PATIENCE, golden, until, words};
use serde_json::json;

#[test]
fn commands_of_a_later_version_are_refused_by_name() {
    let lab = Lab::new();
    for command in ["serve", "pin", "label"] {
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
fn a_damaged_row_stops_a_job_until_the_job_decides() {
    let lab = Lab::new();
    let job = lab.job(10, "");
    let rows = std::fs::read_to_string(lab.path("chat.jsonl")).unwrap();
    let data = lab.write("chat.jsonl", &format!("{rows}{{\"messages\": [}}\n"));
    let problem = lab.refusal(&["plan", job.to_str().unwrap()]);
    assert_eq!(
        (&problem["code"], &problem["ways"][0]["set"]["data.rows.row_not_json"]),
        (&json!("row_not_json"), &json!("skip"))
    );
    assert!(problem["place"]["file"].as_str().unwrap().ends_with("chat.jsonl"), "{problem}");
    let output = lab.run(&["inspect", data.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let items: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(items[0]["problem"]["code"], "row_not_json", "{items}");
    assert_eq!(items[0]["dataset"]["classes"][0]["decision"], json!(null), "{items}");
    lab.json(&["plan", job.to_str().unwrap(), "--set", "data.rows.row_not_json=skip"]);
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
    assert_eq!(problem["place"]["field"], "snapshot.kep");
}

#[test]
fn wrong_usage_is_a_problem_on_standard_output_and_status_2() {
    let lab = Lab::new();
    let generate = |more: &[&'static str]| [&["generate", "--model", "m", "--prompt", "x"], more].concat();
    let job = lab.job(10, "");
    let cases: [(Vec<&str>, &str); 9] = [
        (vec!["trian"], "trian"),
        (vec![], "no command"),
        (vec!["job"], "<ID>"),
        (generate(&["--temperature", "nan"]), "finite number"),
        (generate(&["--temperature", "inf"]), "finite number"),
        (generate(&["--temperature", "-1"]), "finite number"),
        (generate(&["--max-tokens", "0"]), "from 1"),
        (vec!["plan", job.to_str().unwrap(), "--set", "run.steps"], "--set"),
        (vec!["plan", job.to_str().unwrap(), "--set", "run.stepz=3"], "--set"),
    ];
    for (args, word) in cases {
        let output = lab.run(&[&args[..], &["--json"]].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", words(&output));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["problem"]["code"], "usage", "{answer}");
        assert!(answer["problem"]["what"].as_str().unwrap().contains(word), "{args:?}: {answer}");
    }
    assert_eq!(lab.run(&["trian"]).status.code(), Some(2));
    let version = lab.run(&["--version"]);
    assert!(version.status.success() && !version.stdout.is_empty());
    let problem = lab.refusal(&["plan", job.to_str().unwrap(), "--set", "optimizer.learning_rate=abc"]);
    assert_eq!(
        (&problem["code"], &problem["place"]["field"]),
        (&json!("setting_invalid"), &json!("optimizer.learning_rate"))
    );
    assert_eq!(lab.refusal(&["jobs", "--search", "lr>abc"])["code"], "setting_invalid");
}

#[test]
fn a_model_file_is_refused_by_what_it_is() {
    let lab = Lab::new();
    let data = lab.chat(10);
    let gguf = lab.write("model.gguf", "GGUF\u{3}\0\0\0");
    let pickle = lab.write("pytorch_model.bin", "PK\u{3}\u{4}....archive/data.pkl");
    for (file, code) in [(gguf, "file_truncated"), (pickle, "code_in_file")] {
        let file = file.to_str().unwrap();
        assert_eq!(lab.refusal(&["generate", "--model", file, "--prompt", "x"])["code"], code);
        assert_eq!(lab.refusal(&["evaluate", "--model", file, "--data", data.to_str().unwrap()])["code"], code);
    }
}

#[test]
fn a_model_speaks_where_home_cannot_be_written() {
    let lab = Lab::new();
    // Not even root makes a folder in a file.
    let home = lab.write("file", "").join("home");
    let model = golden("models/llama");
    let (home, model, data) = (home.to_str().unwrap(), model.to_str().unwrap(), lab.chat(10));
    let data = data.to_str().unwrap();
    assert_eq!(
        lab.json(&["--home", home, "generate", "--model", model, "--prompt", "1", "--max-tokens", "2"])["tokens"],
        2
    );
    assert!(lab.json(&["--home", home, "evaluate", "--model", model, "--data", data])["loss"].is_f64());
    assert_eq!(lab.json(&["--home", home, "inspect", model, data])[1]["kind"], "dataset");
    assert_eq!(lab.refusal(&["--home", home, "jobs"])["code"], "home_unsuitable");
}

#[test]
fn a_deleted_newest_checkpoint_is_told_and_the_run_goes_on_from_the_one_before() {
    let lab = Lab::new();
    let id = lab.json(&["submit", lab.job(5000, "").to_str().unwrap()])["job"].as_str().unwrap().to_owned();
    assert!(until(PATIENCE, || lab.json(&["job", &id])["steps"].as_u64() >= Some(15)), "{}", lab.log(&id));
    lab.json(&["stop", &id]);
    lab.wait_for(&id, &["stopped"]);
    let rows = lab.json(&["checkpoints", &id]);
    let mut steps: Vec<u64> = rows.as_array().unwrap().iter().map(|row| row["step"].as_u64().unwrap()).collect();
    steps.sort_unstable();
    let [.., before, newest] = steps[..] else { panic!("{rows}") };
    let folder = lab.home().join("runs").join(&id);
    std::fs::remove_dir_all(folder.join(format!("checkpoints/step-{newest:08}"))).unwrap();
    let resumed = lab.run(&["resume", &id]);
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(resumed.status.success() && said.contains(&format!("the checkpoint of step {newest} is gone")), "{said}");
    lab.wait_for(&id, &["running", "finished"]);
    let journal = std::fs::read_to_string(folder.join("journal.jsonl")).unwrap();
    let told = journal.lines().any(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let problem = &line["problem"];
        line["event"] == "warning"
            && problem["code"] == "checkpoint_missing"
            && problem["what"].as_str().is_some_and(|what| what.contains(&format!("step {newest} ")))
            && problem["remedy"].as_str().is_some_and(|remedy| remedy.contains(&format!("from step {before};")))
    });
    assert!(told, "{journal}");
    lab.run(&["stop", &id]);
}

#[test]
fn of_two_deletes_at_once_one_wins_and_the_other_finds_it_in_the_trash() {
    let lab = Lab::new();
    let id = lab.json(&["submit", lab.job(3, "").to_str().unwrap()])["job"].as_str().unwrap().to_owned();
    lab.wait_for(&id, &["finished"]);
    lab.nothing_left();
    let both =
        [lab.stream(&["delete", &id]), lab.stream(&["delete", &id])].map(|child| child.wait_with_output().unwrap());
    let mut codes = both.each_ref().map(|output| output.status.code());
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(3)], "{}{}", words(&both[0]), words(&both[1]));
    for problem in [lab.refusal(&["delete", &id]), lab.refusal(&["delete", &id[..id.len() - 1]])] {
        assert!(problem["what"].as_str().unwrap().contains("already in the trash"), "{problem}");
    }
}

#[test]
fn a_fork_of_an_adapter_whose_base_changed_is_refused_by_name() {
    let lab = Lab::new();
    let base = lab.path("base");
    std::fs::create_dir(&base).unwrap();
    for file in std::fs::read_dir(golden("models/llama")).unwrap().flatten().filter(|file| file.path().is_file()) {
        std::fs::copy(file.path(), base.join(file.file_name())).unwrap();
    }
    let job = lab.job(3, "[model.adapter]\nrank = 2\n");
    let text = std::fs::read_to_string(&job)
        .unwrap()
        .replace(golden("models/llama").to_str().unwrap(), base.to_str().unwrap());
    std::fs::write(&job, text).unwrap();
    let id = lab.json(&["submit", job.to_str().unwrap()])["job"].as_str().unwrap().to_owned();
    lab.wait_for(&id, &["finished"]);
    let weights = base.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let problem = lab.refusal(&["fork", &id, "--step", "3", "--set", "run.steps=6"]);
    assert!(problem["code"] == "model_changed" && problem["what"].as_str().unwrap().contains("base"), "{problem}");
    std::fs::remove_dir_all(&base).unwrap();
    assert_eq!(lab.refusal(&["fork", &id, "--step", "3", "--set", "run.steps=6"])["code"], "not_found");
    let export = lab.path("export");
    let from = lab.checkpoint(&id);
    let problem = lab.refusal(&[
        "export",
        "--from",
        from.to_str().unwrap(),
        "--to",
        export.to_str().unwrap(),
        "--format",
        "safetensors",
    ]);
    assert!(problem["remedy"].as_str().unwrap().contains("--base"), "{problem}");
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
