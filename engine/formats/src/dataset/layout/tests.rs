//! Every layout as people have it, and rows that fit it badly.

use crate::dataset::{Content, Conversation, Options, Record, Row, Rules, Tally, inspect, read};
use crate::template::Turn;
use proptest::prelude::*;
use protocol::Code;
use protocol::facts::DatasetFacts;
use protocol::job::{RowAction, Stage};
use std::collections::BTreeMap;

struct Rows {
    file: tempfile::NamedTempFile,
    options: Options,
}

fn rows<S: AsRef<str>>(rows: &[S]) -> Rows {
    bytes(rows.iter().map(|row| row.as_ref()).collect::<Vec<_>>().join("\n").as_bytes())
}

fn bytes(bytes: &[u8]) -> Rows {
    let file = tempfile::Builder::new().prefix("rows").suffix(".jsonl").tempfile().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Rows { file, options: Options::default() }
}

impl Rows {
    fn decided(mut self, class: &str, action: RowAction) -> Rows {
        self.options.rows.insert(class.into(), action);
        self
    }

    fn role(mut self, name: &str, role: &str) -> Rows {
        self.options.roles.insert(name.into(), role.into());
        self
    }

    fn column(mut self, meaning: &str, name: &str) -> Rows {
        self.options.columns.insert(meaning.into(), name.into());
        self
    }

    fn facts(&self) -> DatasetFacts {
        inspect(self.file.path(), &self.options).unwrap()
    }

    fn records(&self) -> Vec<Record> {
        let all = read(&[self.file.path().to_owned()], &self.options).unwrap().map(Result::unwrap);
        all.filter_map(|row| match row {
            Row::Record(record) => Some(record),
            Row::Problem(_) => None,
        })
        .collect()
    }

    fn first(&self) -> Conversation {
        match self.records().remove(0).content {
            Content::Messages(said) => said,
            other => panic!("{other:?}"),
        }
    }

    /// The code of the one row that is wrong, its sentence, and what is decided.
    fn only_problem(&self) -> (Code, String, Option<RowAction>) {
        let facts = self.facts();
        assert_eq!(facts.classes.len(), 1, "{:?}", facts.classes);
        let class = &facts.classes[0];
        (class.code, class.first.message.clone(), class.decision)
    }
}

fn json(turns: &[Turn]) -> String {
    serde_json::to_string(turns).unwrap()
}

const CHAT: &str =
    r#"[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]"#;

#[test]
fn sharegpt_keys_with_openai_role_names_and_all_other_mixtures_are_the_same_messages() {
    for (who, what) in [("from", "value"), ("role", "content"), ("from", "content"), ("role", "value")] {
        for (user, assistant) in [
            ("user", "assistant"),
            ("human", "gpt"),
            ("Human", "bot"),
            ("user", concat!("chat", "gpt")),
            ("user", "model"),
        ] {
            for column in ["messages", "conversations", "conversation"] {
                let row = format!(
                    r#"{{"{column}":[{{"{who}":"system","{what}":"s"}},{{"{who}":"{user}","{what}":"q"}},{{"{who}":"{assistant}","{what}":"a"}}]}}"#
                );
                let rows = rows(&[&row]);
                assert_eq!(json(&rows.first().turns), CHAT, "{row}");
                let facts = rows.facts();
                assert_eq!(facts.format, if who == "from" { "sharegpt" } else { "messages" });
                assert_eq!(facts.mapping, BTreeMap::from([("messages".to_owned(), column.to_owned())]));
                assert_eq!(facts.stage, Some(Stage::Sft));
            }
        }
    }
}

#[test]
fn function_call_and_observation_rows_become_calls_and_results_with_their_tools() {
    let row = r#"{"conversations":[{"from":"human","value":"q"},{"from":"function_call","value":"{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": [2]}}"},{"from":"observation","value":"r"},{"from":"gpt","value":"a"}],"tools":"[{\"name\": \"f\", \"parameters\": {}}]","system":"s"}"#;
    let said = rows(&[row]).first();
    assert_eq!(
        json(&said.turns),
        r#"[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"b":1,"a":[2]}}}]},{"role":"tool","content":"r"},{"role":"assistant","content":"a"}]"#
    );
    let tools = serde_json::to_string(&said.tools.unwrap()).unwrap();
    assert_eq!(tools, r#"[{"type":"function","function":{"name":"f","parameters":{}}}]"#);
    let facts = rows(&[row]).facts();
    assert_eq!(facts.mapping["tools"], "tools");
    for none in [r#""""#, r#""[]""#, "[]", "null"] {
        let row = row.replace(r#""[{\"name\": \"f\", \"parameters\": {}}]""#, none);
        assert_eq!(rows(&[row]).first().tools, None, "{none}");
    }
}

#[test]
fn arguments_that_are_text_within_json_become_the_object_they_are() {
    let row = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"z\": 1, \"a\": null}"}}]}]}"#;
    assert!(
        json(&rows(&[row]).first().turns)
            .contains(r#"[{"id":"1","type":"function","function":{"name":"f","arguments":{"z":1,"a":null}}}]"#)
    );
    let broken = row.replace(r#"{\"z\": 1, \"a\": null}"#, "{z");
    assert_eq!(rows(&[broken]).only_problem().0, Code::WrongShape);
}

#[test]
fn tool_arguments_are_not_polluted_by_the_keys_of_other_rows() {
    use crate::template::Template;
    let row = |call: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"q"}},{{"role":"assistant","content":null,"tool_calls":[{call}]}}]}}"#
        )
    };
    let rows = rows(&[
        row(r#"{"name":"move","arguments":{"y":1,"x":2}}"#),
        row(r#"{"name":"speak","arguments":{"text":"a"}}"#),
    ]);
    let source = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}{% endfor %}";
    let template = Template::parse(source, None, None).unwrap();
    let texts: Vec<String> = rows
        .records()
        .iter()
        .map(|record| {
            let Content::Messages(said) = &record.content else { panic!() };
            template.render(&said.turns[..1], None, false).unwrap();
            let marked = format!("{{% generation %}}{source}{{% endgeneration %}}");
            Template::parse(&marked, None, None).unwrap().render(&said.turns, None, false).unwrap().text
        })
        .collect();
    assert_eq!(
        texts,
        [r#"{"name": "move", "arguments": {"y": 1, "x": 2}}"#, r#"{"name": "speak", "arguments": {"text": "a"}}"#]
    );
}

#[test]
fn content_as_a_list_of_parts_is_joined_and_media_are_named() {
    for parts in [
        r#"[{"type":"text","text":"one "},{"type":"text","text":"two"}]"#,
        r#"[{"type":"text","value":"one "},"two"]"#,
        r#"[{"text":"one "},{"type":"input_text","text":"two"}]"#,
    ] {
        let row =
            format!(r#"{{"messages":[{{"role":"user","content":{parts}}},{{"role":"assistant","content":"a"}}]}}"#);
        assert!(json(&rows(&[row]).first().turns).starts_with(r#"[{"role":"user","content":"one two"}"#), "{parts}");
    }
    for (part, word) in [
        (r#"{"type":"image_url","image_url":{"url":"x"}}"#, "image_url"),
        (r#"{"type":"input_audio","input_audio":{}}"#, "input_audio"),
    ] {
        let row = format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"x"}},{part}]}},{{"role":"assistant","content":"a"}}]}}"#
        );
        let (code, what, decision) = rows(&[row]).only_problem();
        assert!(code == Code::MediaContent && what.contains(word) && what.contains("part 2"), "{what}");
        assert_eq!(decision, None);
    }
    let beside =
        r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a"}],"images":["a.png"]}"#;
    assert_eq!(rows(&[beside]).only_problem().0, Code::MediaContent);
    assert_eq!(rows(&[beside.replace(r#"["a.png"]"#, "[]")]).facts().usable_rows, 1);
}

#[test]
fn thoughts_and_calls_in_parts_keep_their_kind() {
    let row = r#"{"messages":[{"role":"user","content":[{"type":"text","value":"q"}]},{"role":"assistant","content":[{"type":"reasoning","value":"hm"},{"type":"tool_call","value":"{\"name\": \"f\", \"arguments\": {}}"}],"loss_weight":1.0}]}"#;
    assert_eq!(
        json(&rows(&[row]).first().turns[1..]),
        r#"[{"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}],"loss_weight":1.0}]"#
    );
}

#[test]
fn prompt_and_answer_columns_are_known_by_their_usual_names_and_can_be_changed() {
    for (prompt, answer) in [
        ("prompt", "completion"),
        ("prompt", "response"),
        ("question", "answer"),
        ("query", "response"),
        ("input", "output"),
        ("instruction", "response"),
        ("problem", "solution"),
    ] {
        let rows = rows(&[format!(r#"{{"id":7,"{answer}":"a","{prompt}":"q","system_prompt":"s"}}"#)]);
        assert_eq!(json(&rows.first().turns), CHAT, "{prompt} {answer}");
        let facts = rows.facts();
        assert_eq!((facts.format.as_str(), facts.stage), ("prompt_answer", Some(Stage::Sft)));
        let expected = [("prompt", prompt), ("answer", answer), ("system", "system_prompt")];
        assert_eq!(facts.mapping, expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into());
    }
    let both = rows(&[r#"{"question":"q","answer":"short","solution":"long"}"#]);
    assert!(json(&both.first().turns).contains("short"));
    let changed = both.column("answer", "solution");
    assert!(json(&changed.first().turns).contains("long"));
    assert_eq!(changed.facts().mapping["answer"], "solution");
    let useless = rows(&[r#"{"text":"a"}"#]).column("system", "x");
    assert_eq!(inspect(useless.file.path(), &useless.options).unwrap_err().code, Code::SettingInvalid);
}

#[test]
fn prompts_and_completions_may_be_messages() {
    let row = r#"{"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"a"}]}"#;
    assert_eq!(
        json(&rows(&[row]).first().turns),
        r#"[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]"#
    );
}

#[test]
fn preference_pairs_are_recognised_in_all_their_shapes_and_kept_for_later() {
    for row in [
        r#"{"prompt":"q","chosen":"b","rejected":"c"}"#,
        r#"{"question":"q","chosen":[{"role":"assistant","content":"b"}],"rejected":[{"role":"assistant","content":"c"}]}"#,
        r#"{"conversations":[{"from":"human","value":"q"}],"chosen":{"from":"gpt","value":"b"},"rejected":{"from":"gpt","value":"c"}}"#,
        r#"{"messages":[{"role":"user","content":"q"}],"chosen":"b","rejected":"c"}"#,
    ] {
        let rows = rows(&[row]);
        let facts = rows.facts();
        assert_eq!(
            (facts.format.as_str(), facts.usable_rows, facts.stage),
            ("preference", 1, None),
            "{row}: {facts:?}"
        );
        let Content::Preference { asked, chosen, rejected } = rows.records().remove(0).content else { panic!() };
        assert_eq!(json(&asked), r#"[{"role":"user","content":"q"}]"#, "{row}");
        assert_eq!(json(&chosen), r#"[{"role":"assistant","content":"b"}]"#, "{row}");
        assert_eq!(json(&rejected), r#"[{"role":"assistant","content":"c"}]"#, "{row}");
    }
    let whole = r#"{"chosen_messages":[{"role":"user","content":"q"},{"role":"assistant","content":"b"}],"rejected_messages":[{"role":"user","content":"q"},{"role":"assistant","content":"c"}]}"#;
    assert_eq!(rows(&[whole]).facts().usable_rows, 1);
    let torn = rows(&[r#"{"prompt":"q","chosen":"b","rejected":"c"}"#, r#"{"prompt":"q","chosen":"b"}"#]);
    assert_eq!(torn.only_problem().0, Code::MissingColumn);
}

#[test]
fn labelled_answers_are_recognised_and_kept_for_later() {
    for (row, good) in [
        (r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"label":false}"#, false),
        (r#"{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}],"kto_tag":"true"}"#, true),
        (r#"{"prompt":"q","completion":"a","label":true}"#, true),
        (r#"{"instruction":"q","input":"","output":"a","kto_tag":true}"#, true),
    ] {
        let rows = rows(&[row]);
        let facts = rows.facts();
        assert_eq!((facts.format.as_str(), facts.usable_rows, facts.stage), ("labelled", 1, None), "{row}");
        let Content::Labelled { good: found, .. } = rows.records().remove(0).content else { panic!() };
        assert_eq!(found, good, "{row}");
    }
}

#[test]
fn raw_text_is_the_text_column_or_the_only_one_and_suggests_pretraining() {
    for (row, column) in [
        (r#"{"text":"a","source":"b"}"#, "text"),
        (r#"{"content":"a"}"#, "content"),
        (r#"{"id":1,"body":"a","score":0.5}"#, "body"),
    ] {
        let facts = rows(&[row, row]).facts();
        assert_eq!((facts.format.as_str(), facts.stage), ("text", Some(Stage::Pretrain)), "{row}");
        assert_eq!(facts.mapping["text"], column);
    }
    let late = rows(&[r#"{"instruction":"a"}"#, r#"{"instruction":"a","output":"b"}"#]);
    assert_eq!((late.facts().format.as_str(), late.only_problem().0), ("alpaca", Code::MissingColumn));
}

#[test]
fn an_empty_assistant_turn_is_reported_by_row_and_never_becomes_the_word_none() {
    let row = |answer: &str| {
        format!(r#"{{"conversations":[{{"from":"human","value":"q"}},{{"from":"gpt","value":{answer}}}]}}"#)
    };
    let rows = rows(&[row("\"yes\""), row("\"\""), row("null"), row("\"   \""), row("\"no\"")]);
    let facts = rows.facts();
    assert_eq!((facts.rows, facts.usable_rows), (5, 2));
    let class = &facts.classes[0];
    assert_eq!(
        (class.code, class.rows, class.first.line, class.decision),
        (Code::EmptyAnswer, 3, 2, Some(RowAction::Skip))
    );
    assert_eq!(facts.problems.iter().map(|p| p.line).collect::<Vec<_>>(), [2, 3, 4]);
    for record in rows.records() {
        let Content::Messages(said) = record.content else { panic!() };
        assert!(!json(&said.turns).contains("one"), "{said:?}");
    }
}

#[test]
fn damage_has_no_default_and_the_refusal_names_file_line_count_and_ways_out() {
    let good = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}"#;
    for (bad, class, ways) in [
        ("{\"messages\": [}", "row_not_json", vec!["skip"]),
        ("[1]", "row_not_object", vec!["skip"]),
        (r#"{"chat":[]}"#, "missing_column", vec!["skip"]),
        (r#"{"messages":"x"}"#, "wrong_shape", vec!["skip"]),
        (
            r#"{"messages":[{"role":"user","content":5},{"role":"assistant","content":"a"}]}"#,
            "value_not_text",
            vec!["convert", "skip"],
        ),
        (
            r#"{"messages":[{"role":"alien","content":"q"},{"role":"assistant","content":"a"}]}"#,
            "unknown_role",
            vec!["skip"],
        ),
    ] {
        let data = rows(&[good, bad, good, bad]);
        let facts = data.facts();
        let found = &facts.classes[0];
        assert_eq!((found.code.name(), found.rows, found.decision), (class.to_owned(), 2, None), "{bad}");
        assert_eq!((found.first.row, found.first.line), (2, 2));
        assert!(found.first.text.starts_with(&bad[..3]) && found.first.file.ends_with(".jsonl"), "{found:?}");
        let mut tally = Tally::new(Rules::of(&data.options).unwrap());
        facts.problems.iter().for_each(|row| tally.add(row));
        let problem = tally.refusal(facts.rows).unwrap();
        let sentence = problem.sentence();
        assert_eq!(problem.code, found.code);
        assert!(
            sentence.contains("line 2") && sentence.contains("2 of 4 rows") && sentence.contains(".jsonl"),
            "{sentence}"
        );
        let offered: Vec<&String> =
            problem.ways.iter().filter_map(|way| way.set.get(&format!("data.rows.{class}"))).collect();
        assert_eq!(offered, ways, "{sentence}");
        let skipped = data.decided(class, RowAction::Skip);
        let facts = skipped.facts();
        assert_eq!((facts.usable_rows, facts.classes[0].decision), (2, Some(RowAction::Skip)));
        let mut tally = Tally::new(Rules::of(&skipped.options).unwrap());
        facts.problems.iter().for_each(|row| tally.add(row));
        assert_eq!(tally.refusal(facts.rows), None);
    }
}

#[test]
fn a_number_becomes_its_text_where_the_job_converts_and_the_row_stays_counted() {
    let data = rows(&[
        r#"{"question":"6*7","answer":42}"#,
        r#"{"question":true,"answer":"x"}"#,
        r#"{"question":"q","answer":{"k":[1]}}"#,
    ]);
    assert_eq!(data.facts().usable_rows, 0);
    let data = data.decided("value_not_text", RowAction::Convert);
    let facts = data.facts();
    assert_eq!((facts.usable_rows, facts.classes[0].rows, facts.classes[0].decision), (3, 3, Some(RowAction::Convert)));
    assert!(facts.problem_counts.is_empty());
    let all: String = data
        .records()
        .iter()
        .map(|r| match &r.content {
            Content::Messages(said) => json(&said.turns),
            _ => panic!(),
        })
        .collect();
    assert!(all.contains(r#""42""#) && all.contains(r#""true""#) && all.contains(r#"{\"k\":[1]}"#), "{all}");
}

#[test]
fn a_row_that_is_not_utf8_is_read_as_windows_1252_where_the_job_says_so() {
    let data = bytes(b"{\"text\":\"caf\xe9 \x93x\x94\"}\n{\"text\":\"b\"}");
    let (code, what, decision) = data.only_problem();
    assert!(code == Code::RowNotUtf8 && decision.is_none() && what.contains("line 1"), "{what}");
    assert_eq!(data.facts().problems[0].text, r#"{"text":"caf\xe9 \x93x\x94"}"#);
    let records = data.decided("row_not_utf8", RowAction::Convert).records();
    assert_eq!(records[0].content, Content::Text("café “x”".into()));
    assert_eq!(records[0].converted[0].code, Code::RowNotUtf8);
}

#[test]
fn a_role_that_is_not_known_is_mapped_by_the_job() {
    let row = r#"{"messages":[{"role":"customer","content":"q"},{"role":"agent","content":"a"}]}"#;
    let data = rows(&[row]);
    let (code, what, _) = data.only_problem();
    assert!(code == Code::UnknownRole && what.contains("customer"), "{what}");
    let half = data.role("customer", "user");
    assert!(half.only_problem().1.contains("agent"));
    let whole = half.role("agent", "assistant").decided("unknown_role", RowAction::Map);
    assert_eq!(json(&whole.first().turns), r#"[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]"#);
}

#[test]
fn what_follows_the_last_answer_is_cut_unless_the_job_leaves_such_rows_out() {
    let row = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"and?"}]}"#;
    let data = rows(&[row]);
    assert!(!json(&data.first().turns).contains("and?"));
    let facts = data.facts();
    assert_eq!(
        (facts.usable_rows, facts.classes[0].code, facts.classes[0].decision),
        (1, Code::UnansweredTurn, Some(RowAction::Convert))
    );
    assert_eq!(data.decided("unanswered_turn", RowAction::Skip).facts().usable_rows, 0);
    let silent = rows(&[r#"{"messages":[{"role":"user","content":"q"}]}"#]);
    assert_eq!(silent.only_problem().0, Code::NoAnswer);
}

#[test]
fn rows_that_repeat_are_counted_and_used() {
    // JSON lines repeat as they are written: what else a row holds counts too.
    let facts =
        rows(&[r#"{"text":"a"}"#, r#"{"text":"b","x":1}"#, r#"{"x":2,"text":"b"}"#, r#" {"text":"a"}"#]).facts();
    assert_eq!((facts.usable_rows, facts.duplicates.rows, facts.duplicates.exact), (4, 1, true));
    let chat = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}"#;
    assert_eq!(rows(&[chat, &chat.replace("\"a\"", "\"b\""), chat]).facts().duplicates.rows, 1);
}

#[test]
fn tools_that_are_no_json_are_told_and_text_within_text_ends() {
    for tools in [r#""{""#, r#""\"[]\"""#, "5", r#"["x"]"#] {
        let row = format!(
            r#"{{"messages":[{{"role":"user","content":"q"}},{{"role":"assistant","content":"a"}}],"tools":{tools}}}"#
        );
        let (code, what, _) = rows(&[row]).only_problem();
        assert!(code == Code::WrongShape && what.contains("tools"), "{what}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_under_any_known_name_is_a_record_or_has_a_class(
        columns in prop::collection::vec((0usize..NAMES.len(), 0usize..VALUES.len()), 1..5),
        second in prop::collection::vec((0usize..NAMES.len(), 0usize..VALUES.len()), 0..5),
    ) {
        let row = |columns: &[(usize, usize)]| {
            let fields: Vec<String> = columns.iter().map(|(name, value)| format!("\"{}\":{}", NAMES[*name], VALUES[*value])).collect();
            format!("{{{}}}", fields.join(","))
        };
        let data = rows(&[row(&columns), row(&second)]);
        if let Ok(facts) = inspect(data.file.path(), &data.options) {
            let counted: u64 = facts.problem_counts.values().sum();
            prop_assert_eq!(facts.rows, facts.usable_rows + counted);
            prop_assert!(facts.classes.iter().all(|class| !class.choices.is_empty()), "{:?}", facts.classes);
        }
    }
}

/// Names that mean something, and values that rows have under them, rightly or not.
const NAMES: [&str; 14] = [
    "messages",
    "conversations",
    "instruction",
    "input",
    "output",
    "prompt",
    "text",
    "chosen",
    "rejected",
    "label",
    "tools",
    "history",
    "system",
    "images",
];
const VALUES: [&str; 16] = [
    "null",
    "true",
    "7",
    "\"\"",
    "\"x\"",
    "\"[]\"",
    "\"{\"",
    "[]",
    "{}",
    "[[]]",
    "[[\"a\",\"b\"]]",
    "[{\"role\":\"user\",\"content\":\"q\"}]",
    "[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"a\"}]",
    "[{\"from\":\"function_call\",\"value\":\"{}\"}]",
    "[{\"role\":\"assistant\",\"content\":[{\"type\":5},7,null]}]",
    "[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"x\"}}]}]",
];
