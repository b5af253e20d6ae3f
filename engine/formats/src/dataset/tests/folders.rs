//! Folders as people have them.

use super::tables::arrow_stream;
use super::*;

impl Dropped {
    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn listed(&self) -> Vec<(String, Option<&'static str>)> {
        let records = read(&[self.dir.path().to_owned()], &Options::default()).unwrap();
        let name = |f: &DataFile| f.path.strip_prefix(self.dir.path()).unwrap().display().to_string();
        records.files().iter().map(|f| (name(f), f.split)).collect()
    }
}

#[test]
fn splits_are_named_by_files_and_by_folders() {
    let row = r#"{"text":"a"}"#;
    let dropped = Dropped::new("README.md", "# words");
    for path in [
        "data/train-00000-of-00002.jsonl",
        "data/train-00001-of-00002.jsonl",
        "dev/a.json",
        "my_test.jsonl",
        "other.jsonl",
        "val.jsonl",
    ] {
        dropped.put(path, row);
    }
    dropped.put(".git/config", "[core]");
    dropped.put("dev/dataset_info.json", "{}");
    let expected = [
        ("data/train-00000-of-00002.jsonl", Some("train")),
        ("data/train-00001-of-00002.jsonl", Some("train")),
        ("dev/a.json", Some("validation")),
        ("my_test.jsonl", Some("test")),
        ("other.jsonl", None),
        ("val.jsonl", Some("validation")),
    ];
    // Rows to test on are not trained on.
    let trained = expected.into_iter().filter(|(_, split)| *split == Some("train"));
    let trained: Vec<_> = trained.map(|(name, split)| (name.to_owned(), split)).collect();
    assert_eq!(dropped.listed(), trained);
    let all = files::list(dropped.dir.path()).unwrap().files;
    let splits: Vec<_> = all.iter().map(|file| file.split).collect();
    assert_eq!(splits, expected.map(|(_, split)| split));
    let facts = dropped.facts().unwrap();
    assert_eq!((facts.usable_rows, facts.splits.join(" ").as_str()), (2, "train validation test"));
}

#[test]
fn a_saved_data_set_is_its_tables_and_never_its_description() {
    let dropped = Dropped::new("dataset_dict.json", r#"{"splits": ["train", "test"]}"#);
    for (split, rows) in [("train", 3), ("test", 2)] {
        let state =
            r#"{"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": null, "_fingerprint": "x"}"#;
        dropped.put(&format!("{split}/state.json"), state);
        dropped.put(&format!("{split}/dataset_info.json"), r#"{"features": {"text": {"dtype": "string"}}}"#);
        dropped.put(&format!("{split}/data-00000-of-00001.arrow"), arrow_stream(rows));
        dropped.put(&format!("{split}/cache-1.arrow"), arrow_stream(90));
    }
    let facts = dropped.facts().unwrap();
    assert_eq!((facts.rows, facts.usable_rows, facts.container.as_str()), (3, 3, "arrow"));
    assert_eq!((facts.splits, facts.columns), (vec!["train".to_owned(), "test".into()], vec!["text".to_owned()]));
    let one = inspect(&dropped.dir.path().join("test"), &Options::default()).unwrap();
    assert_eq!(one.rows, 2);
    for (state, code) in [
        ("{", Code::FileMalformed),
        (r#"{"_data_files": [{"filename": "../train/data-00000-of-00001.arrow"}]}"#, Code::PathOutside),
        (r#"{"_data_files": [{"filename": "gone.arrow"}]}"#, Code::FileUnreadable),
        (
            r#"{"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_indices_files": [{"filename": "i.arrow"}]}"#,
            Code::NotSupported,
        ),
    ] {
        dropped.put("test/state.json", state);
        assert_eq!(dropped.facts().unwrap_err().code, code, "{state}");
    }
}

#[test]
fn folders_are_not_walked_without_end() {
    let dropped = Dropped::new("a.jsonl", r#"{"text":"a"}"#);
    dropped.put(&format!("{}x.jsonl", "d/".repeat(limits::FOLDER_DEPTH)), r#"{"text":"b"}"#);
    dropped.put(&format!("{}x.jsonl", "d/".repeat(limits::FOLDER_DEPTH + 1)), r#"{"text":"c"}"#);
    let facts = dropped.facts().unwrap();
    assert_eq!((facts.usable_rows, facts.problem_counts["too_large"]), (2, 1));
    assert!(facts.problems[0].message.contains("d/d/d"), "{:?}", facts.problems);
}

/// Unpacks one of the corpus's archives; None where there is no tar.
fn unpacked(name: &str) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let tar = std::process::Command::new("tar").arg("-xf").arg(corpus(name)).arg("-C").arg(dir.path()).status();
    match tar {
        Ok(status) if status.success() => Some(dir),
        _ => {
            println!("skipped: no tar here");
            None
        }
    }
}

#[test]
fn a_tree_of_links_and_one_of_odd_names_end_as_they_should() {
    if let Some(links) = unpacked("D37_tree_links.tar") {
        let facts = inspect(links.path(), &Options::default()).unwrap();
        let said: String = facts.problems.iter().map(|p| p.message.as_str()).collect();
        assert!(facts.usable_rows >= 1 && said.contains("link") && said.contains("passwd.jsonl"), "{facts:?}");
        assert!(!said.contains("root:"));
    }
    if let Some(odd) = unpacked("D38_tree_odd_names.tar") {
        let facts = inspect(odd.path(), &Options::default()).unwrap();
        assert_eq!((facts.rows, facts.usable_rows), (11, 11), "{facts:?}");
    }
}
