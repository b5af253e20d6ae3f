//! What people really have: GGUF files in odd places, data in other encodings, decisions on rows, models of other programs.

use super::lab::{Lab, golden, words};
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt, symlink};

/// The golden model as a GGUF file in a folder of this name.
fn gguf(lab: &Lab, folder: &str) -> std::path::PathBuf {
    let to = lab.path(folder);
    let (from, to_text) = (golden("models/llama"), to.to_str().unwrap().to_owned());
    let made =
        lab.json(&["export", "--from", from.to_str().unwrap(), "--to", &to_text, "--format", "gguf", "--dtype", "f32"]);
    assert_eq!(made["max_logit_difference"], json!(0.0), "{made}");
    to.join("model.gguf")
}

#[test]
fn a_gguf_file_in_a_read_only_folder_with_a_hard_name_speaks_through_a_link() {
    let lab = Lab::new();
    let file = gguf(&lab, "我的 模型 (q8)");
    let folder = file.parent().unwrap().to_owned();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    let link = lab.path("a link");
    symlink(&file, &link).unwrap();
    let link = link.to_str().unwrap();
    let facts = lab.json(&["inspect", link]);
    assert_eq!((&facts[0]["kind"], &facts[0]["model"]["dtype"]), (&json!("model"), &json!("F32")), "{facts}");
    let speak = |model: &str| lab.json(&["generate", "--model", model, "--prompt", "1 + 1", "--max-tokens", "8"]);
    assert_eq!(speak(link)["text"], speak(golden("models/llama").to_str().unwrap())["text"]);
    // And it is trained: what is kept is an ordinary model folder.
    let job = lab.job(6, "");
    let id = lab.json(&["submit", job.to_str().unwrap(), "--set", &format!("model.path={link}")])["job"].clone();
    let id = id.as_str().unwrap();
    lab.wait_for(id, &["finished"]);
    let kept = lab.checkpoint(id);
    assert!(kept.join("config.json").is_file() && kept.join("tokenizer.json").is_file());
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_table_in_another_encoding_is_read_once_the_user_confirms_it() {
    let lab = Lab::new();
    let path = lab.path("fragen.csv");
    std::fs::write(&path, b"frage,antwort\nWie hei\xdft du?,J\xfcrgen\nUnd wo?,K\xf6ln\n").unwrap();
    let path = path.to_str().unwrap();
    let output = lab.run(&["inspect", path, "--json"]);
    let items: Value = serde_json::from_slice(&output.stdout).unwrap();
    let problem = &items[0]["problem"];
    assert_eq!((output.status.code(), &problem["code"]), (Some(3), &json!("encoding_unconfirmed")), "{items}");
    let named = problem["ways"][0]["set"]["data.encoding"].as_str().unwrap().to_owned();
    let read = lab.json(&[
        "inspect",
        path,
        "--set",
        &format!("data.encoding={named}"),
        "--set",
        "data.columns.prompt=frage",
        "--set",
        "data.columns.answer=antwort",
    ]);
    assert_eq!((&read[0]["problem"], &read[0]["dataset"]["usable_rows"]), (&Value::Null, &json!(2)), "{read}");
}

#[test]
fn a_job_without_a_decision_on_damaged_rows_is_refused_and_with_one_it_trains_on_the_rest() {
    let lab = Lab::new();
    let job = lab.job(4, "");
    let path = lab.path("chat.jsonl");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good + "{\"messages\": [\n").unwrap();
    let job = job.to_str().unwrap();
    let problem = lab.refusal(&["train", job]);
    assert_eq!(problem["code"], "row_not_json");
    assert_eq!(problem["ways"][0]["set"], json!({"data.rows.row_not_json": "skip"}));
    let output = lab.run(&["train", job, "--set", "data.rows.row_not_json=skip", "--json"]);
    assert!(output.status.success(), "{}", words(&output));
    let id = lab.json(&["jobs"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(lab.json(&["job", &id])["spec"]["data"]["rows"], json!({"row_not_json": "skip"}));
}

#[test]
fn models_in_a_place_of_ones_own_are_listed_and_taken() {
    let lab = Lab::new();
    let file = gguf(&lab, "mine");
    let place = file.parent().unwrap().to_str().unwrap();
    let shelf = lab.json(&["models", "--add", place]);
    let found = shelf["models"].as_array().unwrap().iter().find(|model| model["source"] == "added").unwrap().clone();
    assert_eq!((&found["format"], &found["path"]), (&json!("gguf"), &json!(file.to_str().unwrap())));
    let to = lab.path("to");
    std::fs::create_dir(&to).unwrap();
    let to = to.to_str().unwrap();
    let take =
        |more: &[&str]| lab.json(&[&["take", file.to_str().unwrap(), "--to", to, "--how", "link"], more].concat());
    let told = take(&["--dry-run"]);
    assert!(told["dry_run"] == json!(true) && std::fs::read_dir(to).unwrap().next().is_none(), "{told}");
    let taken = take(&[]);
    let taken = std::path::Path::new(taken["to"].as_str().unwrap());
    assert_eq!(lab.json(&["inspect", taken.to_str().unwrap()])[0]["kind"], "model");
    let left = lab.json(&["models", "--remove", place]);
    assert!(left["models"].as_array().unwrap().iter().all(|model| model["source"] != "added"), "{left}");
}
