//! JSON documents that are not one record a line.

use super::*;

const ROWS: [&str; 3] = [r#"{"text":"a","n":1}"#, r#"{"text":"b","n":null}"#, r#"{"text":"c } ] , ","n":[{"x":"]"}]}"#];

fn texts(name: &str, text: &str) -> Vec<String> {
    let dropped = Dropped::new(name, text);
    let text = |content| match content {
        Content::Text(text) => text,
        _ => panic!("no text"),
    };
    dropped.records().into_iter().map(text).collect()
}

#[test]
fn records_under_a_key_one_after_the_other_or_by_number_are_the_same() {
    let (lines, wide) = (ROWS.join(",\n"), ROWS.join(" , "));
    for text in [
        format!("[{lines}]"),
        format!("{{\"data\":[{lines}]}}"),
        format!(
            "{{\"version\": \"1.1\", \"license\": {{\"data\": [1]}}, \"n\": 7, \"data\": [ {wide} ], \"end\": null}}"
        ),
        format!("\u{FEFF}{{\n  \"train\": [\n    {lines}\n  ]\n}}\n"),
        format!("{{\"0\":{},\"1\":{},\"2\":{}}}", ROWS[0], ROWS[1], ROWS[2]),
        ROWS.iter().map(|r| r.replace(":", ":\n ")).collect::<Vec<_>>().join("\n"),
        ROWS.join("\n"),
    ] {
        assert_eq!(texts("a.json", &text), ["a", "b", "c } ] , "], "{text}");
    }
}

#[test]
fn an_object_of_columns_is_rows() {
    for text in [
        r#"{"text":["a","b","c"],"n":[1,2,null]}"#,
        "{\n \"text\": {\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"},\n \"n\": {\"0\":1,\"1\":2,\"2\":3}\n}",
        r#"{"columns":["text","n"],"index":[0,1,2],"data":[["a",1],["b",2],["c",3]]}"#,
    ] {
        assert_eq!(texts("a.json", text), ["a", "b", "c"], "{text}");
        let facts = facts("a.json", text).unwrap();
        assert_eq!((facts.columns, facts.container), (vec!["text".to_owned(), "n".into()], "json".to_owned()));
    }
    let problem = facts("a.json", r#"{"text":["a","b"],"n":[1]}"#).unwrap_err();
    assert!(problem.code == Code::FileMalformed && problem.what.contains("\"n\" has 1"), "{problem}");
    let problem = facts("a.json", "{\"text\":[\"a\",\n\"b\"],\"n\":[1,").unwrap_err();
    assert!(problem.code == Code::LayoutUnknown || problem.code == Code::FileMalformed, "{problem}");
}

#[test]
fn one_record_alone_is_a_record_however_it_is_printed() {
    let row = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"tags":["x"]}"#;
    let pretty = serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(row).unwrap()).unwrap();
    for text in [row.to_owned(), pretty.clone(), format!("{pretty}\n{pretty}")] {
        let records = Dropped::new("a.json", &text).records();
        assert_eq!(records.len(), 1 + usize::from(text.len() > pretty.len()), "{text}");
        assert_eq!(said(&records[0])[1].1, "a");
    }
    // Longer than what is looked at.
    let long = format!("{{\n \"text\": \"{}\"\n}}", "word ".repeat(40_000));
    assert_eq!(texts("a.json", &long)[0].len(), 200_000);
}

#[test]
fn a_second_list_of_records_is_named_and_left_out() {
    let text = format!("{{\"train\":[{}],\"test\":[{}]}}", ROWS.join(","), ROWS[0]);
    let facts = facts("a.json", text).unwrap();
    assert_eq!((facts.rows, facts.usable_rows, facts.problem_counts["not_supported"]), (4, 3, 1));
    assert!(facts.problems[0].message.contains("\"test\""), "{:?}", facts.problems);
}

#[test]
fn a_large_object_is_streamed_and_a_cut_one_says_so() {
    let many = vec![ROWS[0]; 20_000].join(",");
    let whole = format!("{{\"version\":1,\"data\":[{many}]}}");
    assert_eq!(texts("a.json", &whole).len(), 20_000);
    let cut = facts("a.json", &whole[..whole.len() - 10]).unwrap();
    assert_eq!((cut.usable_rows, cut.problems.len()), (19_999, 1));
    let numbered: Vec<String> = (0..20_000).map(|i| format!("\"{i}\":{}", ROWS[0])).collect();
    assert_eq!(texts("a.json", &format!("{{{}}}", numbered.join(","))).len(), 20_000);
}

#[test]
fn columns_over_the_limit_are_refused_by_name() {
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    write!(file, "{{\"text\": [\"a\", {}", "\"word\", ".repeat(20_000)).unwrap();
    file.as_file().set_len(limits::JSON_COLUMNS_BYTES + 1).unwrap();
    let problem = inspect(file.path(), &Options::default()).unwrap_err();
    assert!(
        problem.code == Code::TooLarge && problem.what.contains("limit") || problem.what.contains("at most"),
        "{problem}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_to_any_shape_ends_in_rows_or_a_refusal(shape in 0usize..6, changes in prop::collection::vec((0usize..400, any::<u8>()), 1..6), cut in 0usize..400) {
        let lines = ROWS.join(",\n");
        let text = match shape {
            0 => format!("{{\"data\":[{lines}]}}"),
            1 => format!("{{\"version\": \"1.1\", \"x\": {{}}, \"data\": [ {lines} ], \"end\": null}}"),
            2 => format!("{{\"0\":{},\"1\":{}}}", ROWS[0], ROWS[1]),
            3 => "{\"text\":[\"a\",\"b\",\"c\"],\"n\":[1,2,null]}".into(),
            4 => "{\"columns\":[\"text\",\"n\"],\"index\":[0,1],\"data\":[[\"a\",1],[\"b\",2]]}".into(),
            _ => ROWS.iter().map(|r| r.replace(":", ":\n ")).collect::<Vec<_>>().join("\n"),
        };
        let mut bytes = text.into_bytes();
        for (at, value) in changes {
            let n = bytes.len();
            bytes[at % n] = value;
        }
        bytes.truncate(bytes.len().saturating_sub(cut % 40));
        if let Ok(facts) = facts("a.json", bytes) {
            let bad: u64 = facts.problem_counts.values().sum();
            prop_assert_eq!(facts.rows, facts.usable_rows + bad);
        }
    }
}
