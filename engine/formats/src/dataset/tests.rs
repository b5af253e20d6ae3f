//! Data sets as people have them.

use super::sniff::Container;
use super::*;
use proptest::prelude::*;
use protocol::facts::DatasetFacts;
use protocol::limits;
use std::io::Write as _;

mod encodings;
mod folders;
mod json;
mod separated;
mod tables;

fn corpus(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/hostile").join(path)
}

struct Dropped {
    dir: tempfile::TempDir,
}

impl Dropped {
    fn new(name: &str, bytes: impl AsRef<[u8]>) -> Dropped {
        let dropped = Dropped { dir: tempfile::tempdir().unwrap() };
        dropped.add(name, bytes);
        dropped
    }

    fn add(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    fn facts(&self) -> Outcome<DatasetFacts> {
        inspect(self.dir.path(), &Options::default())
    }

    fn rows(&self) -> Vec<Row> {
        read(&[self.dir.path().to_owned()], &Options::default()).unwrap().map(Result::unwrap).collect()
    }

    fn records(&self) -> Vec<Content> {
        let content = |row| match row {
            Row::Record(record) => Some(record.content),
            Row::Problem(_) => None,
        };
        self.rows().into_iter().filter_map(content).collect()
    }
}

fn facts(name: &str, bytes: impl AsRef<[u8]>) -> Outcome<DatasetFacts> {
    Dropped::new(name, bytes).facts()
}

fn said(content: &Content) -> Vec<(String, String)> {
    let Content::Messages(Conversation { turns, .. }) = content else { panic!("{content:?}") };
    let field = |t: &Turn, k: &str| t.get_attr(k).unwrap().as_str().unwrap().to_owned();
    turns.iter().map(|t| (field(t, "role"), field(t, "content"))).collect()
}

const ALPACA: &str = r#"{"instruction":"Add","input":"1+1","output":"2"}"#;

#[test]
fn the_users_turn_is_instruction_then_newline_and_input() {
    let text = format!(
        "{ALPACA}\n{}\n",
        r#"{"instruction":"Hi","input":"","output":"Yo","system":"Be brief","history":[["a","b"]]}"#
    );
    let records = Dropped::new("a.jsonl", text).records();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(said(&records[0]), [pair("user", "Add\n1+1"), pair("assistant", "2")]);
    let turns = [
        pair("system", "Be brief"),
        pair("user", "a"),
        pair("assistant", "b"),
        pair("user", "Hi"),
        pair("assistant", "Yo"),
    ];
    assert_eq!(said(&records[1]), turns);
}

#[test]
fn a_mark_blank_lines_and_crlf_change_nothing() {
    let rows = [r#"{"text":"a","x":{"k":1}}"#, r#"{"text":"b","x":{"j":2}}"#, r#"{"text":"c"}"#];
    let plain = Dropped::new("a.jsonl", rows.join("\n")).records();
    assert_eq!(plain.len(), 3);
    let variants = [
        format!("\u{FEFF}{}", rows.join("\n")),
        format!("\n\n{}\r\n \t\n\n", rows.join("\r\n\r\n")),
        format!("[{}]", rows.join(",")),
        format!("\u{FEFF}[\n  {}\n]\n", rows.join(",\n")),
    ];
    for text in variants {
        assert_eq!(Dropped::new("a.jsonl", &text).records(), plain, "{text}");
    }
    let control = inspect(&corpus("ok/crlf_and_blank.jsonl"), &Options::default()).unwrap();
    assert_eq!((control.rows, control.usable_rows), (5, 5));
}

#[test]
fn an_empty_file_is_named_and_no_job_is_made() {
    for bytes in ["", "   \n\n \t ", "[]", " [ ] "] {
        let problem = facts("a.jsonl", bytes).unwrap_err();
        assert_eq!(problem.code, Code::FileEmpty, "{bytes:?}: {problem}");
        assert!(problem.sentence().contains("a.jsonl"));
    }
    assert_eq!(inspect(&corpus("D35_only_blank_lines.jsonl"), &Options::default()).unwrap_err().code, Code::FileEmpty);
    let blank = vec![b' '; 200_000];
    assert_eq!(facts("a.jsonl", blank).unwrap_err().code, Code::FileEmpty);
}

#[test]
fn bad_lines_are_named_and_the_rest_is_used() {
    for (file, line, code, words, usable) in [
        ("D25_bad_line.jsonl", 3, Code::RowNotJson, "not JSON", 4),
        ("D26_not_utf8.jsonl", 2, Code::RowNotUtf8, "UTF-8", 2),
        ("D27_mixed_shape.jsonl", 4, Code::RowNotObject, "not an object", 3),
        ("D36_deep.jsonl", 2, Code::RowNotJson, "nested", 1),
    ] {
        let facts = inspect(&corpus(file), &Options::default()).unwrap();
        let first = &facts.problems[0];
        assert_eq!(
            (first.line, first.row, first.code, facts.usable_rows),
            (line, line, code, usable),
            "{file}: {first:?}"
        );
        let place = format!("{file}, line {line}");
        assert!(first.message.contains(&place) && first.message.contains(words), "{file}: {first:?}");
    }
    let markup = inspect(&corpus("D34_html_in_text.jsonl"), &Options::default()).unwrap();
    assert_eq!((markup.rows, markup.usable_rows), (9, 9));
}

#[test]
fn an_empty_answer_is_reported_and_never_becomes_the_word_none() {
    let row = |answer: &str| {
        format!(r#"{{"messages":[{{"role":"user","content":"q"}},{{"role":"assistant","content":{answer}}}]}}"#)
    };
    let rows = [row("\"yes\""), row("\"\""), row("null"), row("\"  \""), row("\"no\"")].join("\n");
    let facts = facts("a.jsonl", rows).unwrap();
    assert_eq!((facts.rows, facts.usable_rows, facts.problem_counts["empty_answer"]), (5, 2, 3));
    assert_eq!(facts.problems.iter().map(|p| p.line).collect::<Vec<_>>(), [2, 3, 4]);
    let alpaca = [r#"{"instruction":"a","output":null}"#, r#"{"instruction":"a","output":" "}"#, ALPACA].join("\n");
    assert_eq!(super::tests::facts("a.jsonl", alpaca).unwrap().problem_counts["empty_answer"], 2);
}

#[test]
fn a_field_may_change_its_type_late() {
    let mut rows = String::new();
    for i in 0..20_000 {
        rows.push_str(&format!("{{\"instruction\":\"q{i}\",\"output\":\"a\",\"system\":null}}\n"));
    }
    rows.push_str(r#"{"instruction":"q","output":"a","system":"Now I speak","extra":1}"#);
    let dropped = Dropped::new("a.jsonl", rows);
    let facts = dropped.facts().unwrap();
    assert_eq!((facts.rows, facts.usable_rows), (20_001, 20_001));
    assert_eq!(facts.columns, ["instruction", "output", "system", "extra"]);
    assert_eq!(said(dropped.records().last().unwrap())[0].1, "Now I speak");
}

#[test]
fn rows_that_say_nothing_known_are_named_by_their_columns() {
    for (row, word) in [
        (r#"{"frage":"a","antwort":"b"}"#, "frage, antwort"),
        (r#"["a"]"#, "no row is an object"),
        ("{\n  \"a\": {\n \"b\": 1\n }\n}\n", "nothing known: a"),
    ] {
        let problem = facts("a.json", row).unwrap_err();
        assert_eq!(problem.code, Code::LayoutUnknown, "{row}: {problem}");
        assert!(problem.sentence().contains(word), "{row}: {problem}");
    }
}

#[test]
fn named_columns_are_used_and_wrong_names_refused() {
    let dropped = Dropped::new("a.jsonl", "{\"q\":\"x\",\"a\":\"y\"}\n{\"q\":\"x\"}\n");
    let options = |pairs: &[(&str, &str)]| Options {
        columns: pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        ..Options::default()
    };
    let facts = inspect(dropped.dir.path(), &options(&[("prompt", "q"), ("answer", "a")])).unwrap();
    assert_eq!((facts.rows, facts.usable_rows, facts.format.as_str()), (2, 1, "prompt_answer"));
    for bad in [&[("foo", "q")][..], &[("text", "q"), ("messages", "a")]] {
        assert_eq!(inspect(dropped.dir.path(), &options(bad)).unwrap_err().code, Code::SettingInvalid);
    }
    assert_eq!(inspect(dropped.dir.path(), &options(&[("text", "q")])).unwrap().usable_rows, 2);
}

#[test]
fn other_files_are_called_by_their_name() {
    for (file, code, word) in [
        ("D31_bomb.parquet", Code::TooLarge, "limit"),
        ("D32_zip_slip.zip", Code::NotSupported, "not supported"),
        ("D33_zip_bomb.zip", Code::NotSupported, "not supported"),
        ("D16_pickle_bin/pytorch_model.bin", Code::NotSupported, "zip"),
        ("D_ok_model/model.safetensors", Code::FormatUnknown, "weights"),
    ] {
        let problem = inspect(&corpus(file), &Options::default()).unwrap_err();
        assert_eq!(problem.code, code, "{file}: {problem}");
        assert!(problem.sentence().contains(word) && problem.place.file.is_some(), "{file}: {problem}");
    }
    for (bytes, code) in [
        (&b"\x80\x04\x95abc"[..], Code::CodeInFile),
        (b"\x1f\x8b\x08abc", Code::NotSupported),
        (b"%PDF-1.7", Code::FormatUnknown),
        (b"\x89PNG\r\n", Code::FormatUnknown),
        (b"<!DOCTYPE html><html>", Code::FormatUnknown),
        (b"\xff\xfea\0b\0", Code::EncodingUnconfirmed),
        (b"a\0b", Code::FormatUnknown),
        (b"ARROW1\0\0", Code::FileTruncated),
        (b"PAR1", Code::FileTruncated),
    ] {
        assert_eq!(facts("a.jsonl", bytes).unwrap_err().code, code, "{bytes:?}");
    }
    let saved = Dropped::new("state.json", "{}");
    saved.add("data-00000-of-00001.arrow", "ARROW1");
    assert_eq!(saved.facts().unwrap_err().code, Code::FileTruncated);
}

#[test]
fn links_in_a_folder_are_left_out_by_name() {
    let dropped = Dropped::new("good.jsonl", r#"{"text":"fine"}"#);
    std::os::unix::fs::symlink("/etc/passwd", dropped.dir.path().join("passwd.jsonl")).unwrap();
    std::os::unix::fs::symlink(".", dropped.dir.path().join("loop")).unwrap();
    let facts = dropped.facts().unwrap();
    assert_eq!((facts.rows, facts.usable_rows, facts.problem_counts["path_outside"]), (1, 1, 2));
    assert!(facts.problems[1].message.contains("passwd.jsonl") && facts.problems[1].message.contains("link"));
}

#[test]
fn odd_names_are_files_like_any_other() {
    use std::os::unix::ffi::OsStrExt;
    let dropped = Dropped::new("new\nline.jsonl", r#"{"text":"a"}"#);
    for name in [
        &b"-rf.jsonl"[..],
        b"bad\xff\xfeutf8.jsonl",
        b"%2e%2e%2f.jsonl",
        " lead .jsonl".as_bytes(),
        "\u{202e}x.jsonl".as_bytes(),
    ] {
        std::fs::write(dropped.dir.path().join(std::ffi::OsStr::from_bytes(name)), "{\"text\":\"b\"}\n,").unwrap();
    }
    let facts = dropped.facts().unwrap();
    assert_eq!((facts.usable_rows, facts.rows), (6, 11));
    assert!(facts.problems.iter().all(|p| !p.message.contains(['\n', '\u{202e}'])), "{:?}", facts.problems);
}

#[test]
fn files_of_different_kinds_are_one_data_set() {
    let dropped = Dropped::new("a.jsonl", r#"{"text":"a"}"#);
    dropped.add("b.txt", "Just words.\n");
    dropped.add("c.csv", "id,text\n1,b\n2,c\n");
    dropped.add("README.md", "# ignored");
    let facts = dropped.facts().unwrap();
    assert_eq!((facts.rows, facts.usable_rows, facts.container.as_str()), (4, 4, "jsonl, text, csv"));
}

#[test]
fn a_text_file_is_all_its_blocks_and_begins_and_ends_once() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sample/kjv.txt");
    let rows = read(std::slice::from_ref(&path), &Options::default()).unwrap();
    let records: Vec<Record> = rows
        .map(|r| match r.unwrap() {
            Row::Record(r) => r,
            Row::Problem(p) => panic!("{p:?}"),
        })
        .collect();
    let text: String = records
        .iter()
        .map(|r| match &r.content {
            Content::Text(t) => t.as_str(),
            _ => panic!(),
        })
        .collect();
    assert_eq!(text, std::fs::read_to_string(&path).unwrap());
    assert!(records.len() > 200);
    assert_eq!((records.iter().filter(|r| r.begins).count(), records.iter().filter(|r| r.ends).count()), (1, 1));
    assert!(records[0].begins && records.last().unwrap().ends && records[1].line > 10);
}

#[test]
fn a_record_over_the_limit_is_passed_over_without_being_kept() {
    let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    writeln!(file, "{{\"text\":\"a\"}}").unwrap();
    let long = vec![b'x'; limits::RECORD_BYTES + 10];
    for _ in 0..2 {
        file.write_all(&long).unwrap();
    }
    writeln!(file, "\n{{\"text\":\"b\"}}").unwrap();
    let facts = inspect(file.path(), &Options::default()).unwrap();
    assert_eq!((facts.rows, facts.usable_rows, facts.problem_counts["too_large"]), (3, 2, 1));
}

#[test]
fn a_cut_array_gives_its_whole_records_and_says_where_it_ends() {
    let facts = facts("a.json", format!("[{ALPACA},\n{ALPACA},\n{{\"instruction\":\"x")).unwrap();
    assert_eq!((facts.usable_rows, facts.rows, facts.problems[0].line), (2, 3, 3));
    for bad in ["[{\"text\":\"a\"} {\"text\":\"b\"}]", "[{\"text\":\"a\"},]", "[{\"text\":\"a\"}] x"] {
        let facts = super::tests::facts("a.json", bad).unwrap();
        assert_eq!((facts.usable_rows, facts.problems.len()), (1, 1), "{bad}");
    }
}

/// Real data that may not be copied into the repository.
fn shared(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("ANNEAL_TEST_DATA").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/data");
    let path = folder.unwrap_or(beside).join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {name} is not here ($ANNEAL_TEST_DATA)");
    None
}

#[test]
fn public_data_sets_are_read_or_named() {
    for (name, format, rows, usable) in [
        ("alpaca_en_demo.json", "alpaca", 999, 999),
        ("alpaca_zh_demo.json", "alpaca", 1000, 1000),
        ("identity.json", "alpaca", 91, 91),
        ("c4_demo.jsonl", "text", 300, 300),
        ("glaive_toolcall_en_demo.json", "sharegpt", 300, 300),
        ("glaive_toolcall_zh_demo.json", "sharegpt", 300, 300),
        ("reason_tool_use_demo_50.jsonl", "messages", 50, 50),
        ("v1_sft_demo.jsonl", "messages", 500, 500),
        ("v1_dpo_demo.jsonl", "preference", 10, 10),
        ("dpo_en_demo.json", "preference", 299, 299),
        ("dpo_zh_demo.json", "preference", 300, 300),
        ("kto_en_demo.json", "labelled", 300, 300),
    ] {
        let Some(path) = shared(&format!("llama_factory/{name}")) else { continue };
        let facts = inspect(&path, &Options::default()).unwrap();
        println!(
            "| {name} | {} | {} | {} | {} | {:?} | {:?} | {:?}",
            facts.container,
            facts.format,
            facts.rows,
            facts.usable_rows,
            facts.problem_counts,
            facts.duplicates,
            facts.mapping
        );
        assert_eq!(
            (facts.format.as_str(), facts.rows, facts.usable_rows),
            (format, rows, usable),
            "{name}: {:?}",
            facts.classes
        );
    }
    if let Some(path) = shared("llama_factory/wiki_demo.txt") {
        let facts = inspect(&path, &Options::default()).unwrap();
        println!("| wiki_demo.txt | {} | {} | {} | {}", facts.container, facts.format, facts.rows, facts.usable_rows);
        assert_eq!((facts.format.as_str(), facts.rows), ("text", facts.usable_rows));
    }
}

#[test]
fn every_container_of_public_data_opens_to_its_end() {
    let mut rows = std::collections::BTreeMap::new();
    for folder in ["llama_factory", "corpus"] {
        let Some(path) = shared(folder) else { continue };
        for file in files(&path).unwrap() {
            let kind = sniff::kind(&file, None).unwrap();
            let mut source = Source::open(&file, &kind).unwrap();
            let mut n = 0;
            while let Some(raw) = source.next().unwrap() {
                let rules = Rules::default();
                let read =
                    meaning::understood(&raw.body.unwrap(), raw.line, kind.encoding, &mut layout::Reading::new(&rules));
                assert!(read.is_ok(), "{}", file.display());
                n += 1;
            }
            assert!(n > 0, "{}", file.display());
            rows.insert(shown(&file), (kind.container.name(), n));
        }
    }
    if !rows.is_empty() {
        assert_eq!(rows["glaive_toolcall_zh_demo.json"], ("json", 300));
        assert_eq!(rows["reason_tool_use_demo_50.jsonl"], ("jsonl", 50));
        assert_eq!(rows["python311_docs.jsonl"], ("jsonl", 453));
        assert_eq!((rows["wiki_demo.txt"].0, rows["kjv.txt"].0), ("text", "text"));
        assert!(!rows.contains_key("dataset_info.json"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_end_in_facts_or_a_refusal(bytes in prop::collection::vec(any::<u8>(), 0..300), ending in "(jsonl|json|txt|csv|tsv)") {
        let _ = facts(&format!("a.{ending}"), bytes);
    }

    #[test]
    fn any_damage_to_a_good_file_leaves_rows_counted(changes in prop::collection::vec((0usize..200, any::<u8>()), 1..5), array in any::<bool>()) {
        let rows = [ALPACA; 4];
        let mut bytes = if array { format!("[{}]", rows.join(",\n")) } else { rows.join("\n") }.into_bytes();
        for (at, value) in changes {
            let n = bytes.len();
            bytes[at % n] = value;
        }
        if let Ok(facts) = facts("a.json", bytes) {
            let bad: u64 = facts.problem_counts.values().sum();
            prop_assert_eq!(facts.rows, facts.usable_rows + bad);
        }
    }

    #[test]
    fn lines_are_what_a_plain_reader_sees(texts in prop::collection::vec("\\PC{0,12}", 1..20), crlf in any::<bool>()) {
        let lines: Vec<String> = texts.iter().map(|t| serde_json::json!({"text": format!("x{t}")}).to_string()).collect();
        let dropped = Dropped::new("a.jsonl", lines.join(if crlf { "\r\n" } else { "\n" }));
        let read: Vec<String> = dropped.records().into_iter().map(|c| match c { Content::Text(t) => t, _ => panic!() }).collect();
        prop_assert_eq!(read, texts.iter().map(|t| format!("x{t}")).collect::<Vec<_>>());
    }

    #[test]
    fn text_blocks_never_lose_a_byte(text in "(\\PC|\n| ){0,40}", repeat in 1usize..3000) {
        let whole = format!("a{}", text.repeat(repeat));
        let dropped = Dropped::new("a.txt", &whole);
        if let Ok(records) = read(&[dropped.dir.path().to_owned()], &Options::default()) {
            let rows: Vec<Row> = records.map(Result::unwrap).collect();
            let texts: Option<String> = rows.iter().map(|r| match r { Row::Record(Record { content: Content::Text(t), .. }) => Some(t.as_str()), _ => None }).collect();
            if let Some(joined) = texts {
                prop_assert_eq!(joined, whole);
            }
        }
    }
}
