//! Rows of data sets that are looked at, over the golden toy model.

use super::*;
use crate::verb::testing::golden;
use protocol::JobSpec;
use protocol::facts::Preview;
use std::io::Cursor;
use std::path::Path;

const ROWS: u64 = 1700;

struct Desk {
    _folder: tempfile::TempDir,
    session: Session,
}

impl Desk {
    fn new(name: &str, text: &str) -> Desk {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let text = format!(
            "stage = \"sft\"\n[model]\npath = {:?}\n[data]\ntrain = [{path:?}]\nrows = {{ row_not_json = \"skip\" }}\n",
            golden("models/llama")
        );
        let spec = Box::new(JobSpec::parse(&text, &[], Path::new("/")).unwrap());
        Desk { session: Session::open(LookAtRows { spec, max_length: 128 }).unwrap(), _folder: folder }
    }

    fn ask<T: serde::de::DeserializeOwned>(&mut self, ask: RowsAsk) -> Outcome<T> {
        self.session.answer(&ask).map(|value| serde_json::from_value(value).unwrap())
    }

    fn page(&mut self, from: u64, count: u32) -> RowPage {
        self.ask(RowsAsk::Page { from, count }).unwrap()
    }
}

fn row(i: u64) -> String {
    match i {
        7 => "this is no JSON".into(),
        9 => format!(r#"{{"instruction":"question {i}","output":"{}"}}"#, "long ".repeat(300)),
        _ => format!(r#"{{"instruction":"question {i}","output":"Answer {i}"}}"#),
    }
}

fn lines() -> String {
    (1..=ROWS).map(|i| row(i) + if i % 3 == 0 { "\r\n\n" } else { "\n" }).collect()
}

fn array() -> String {
    let all: Vec<String> = (1..=ROWS).filter(|i| *i != 7).map(row).collect();
    format!("[{}]", all.join(",\n"))
}

#[test]
fn any_part_of_the_list_is_read_as_if_all_before_it_had_been() {
    let mut desk = Desk::new("a.jsonl", &lines());
    for from in [1, 1600, 513, 512, 1, 1024, 1699] {
        let page = desk.page(from, 5);
        let prompts: Vec<(u64, String)> = page.rows.iter().map(|line| (line.row, line.prompt.clone())).collect();
        let expected = from..(from + 5).min(ROWS + 1);
        let expected: Vec<(u64, String)> =
            expected.map(|i| (i, if i == 7 { String::new() } else { format!("question {i}") })).collect();
        assert_eq!(prompts, expected, "from {from}");
        assert!(page.known >= page.rows.last().unwrap().row);
    }
    assert!(desk.page(ROWS + 1, 5).rows.is_empty() && desk.page(ROWS + 1, 5).complete);
    assert_eq!(desk.page(1, 100_000).rows.len(), limits::LISTED_ROWS as usize);
}

#[test]
fn containers_without_places_of_their_own_give_the_same_rows() {
    let mut desk = Desk::new("a.json", &array());
    let page = desk.page(1500, 2);
    assert_eq!(page.rows[0].answer, "Answer 1501");
    assert_eq!((desk.page(1, 1).rows[0].answer.as_str(), page.complete), ("Answer 1", true));
}

#[test]
fn a_line_of_the_list_tells_tokens_the_limit_and_why_a_row_cannot_be_used() {
    let mut desk = Desk::new("a.jsonl", &lines());
    let page = desk.page(6, 4);
    let problem = page.rows[1].problem.as_ref().unwrap();
    assert_eq!((problem.code, problem.line, page.rows[1].tokens), (Code::RowNotJson, 9, 0));
    assert!(page.rows[3].too_long && page.rows[3].tokens > 128 && !page.rows[0].too_long);
    assert!(page.rows[0].trained > 0 && page.rows[0].trained < page.rows[0].tokens);
    let preview: Preview = desk.ask(RowsAsk::Row { row: 6 }).unwrap();
    assert_eq!((preview.row, preview.length), (6, page.rows[0].tokens));
    let problem = desk.ask::<Preview>(RowsAsk::Row { row: ROWS + 1 }).unwrap_err();
    assert_eq!(problem.code, Code::NotFound);
}

#[test]
fn a_search_finds_the_next_row_whatever_its_case_and_ends_at_the_last() {
    let mut desk = Desk::new("a.jsonl", &lines());
    let mut find = |text: &str, from| desk.ask::<FoundRow>(RowsAsk::Find { text: text.into(), from }).unwrap();
    let first = find("ANSWER 15", 1);
    assert_eq!(first.row, Some(15));
    assert_eq!(find("answer 15", 16).row, Some(150));
    // What is not there is searched for to the end, a second at a time.
    let mut none = find("nowhere", 1);
    while let Some(next) = none.next {
        none = find("nowhere", next);
    }
    assert_eq!(none.row, None);
}

#[test]
fn questions_come_one_a_line_and_a_wrong_one_is_no_end() {
    let text = b"{\"ask\":\"row\",\"row\":1}\n{\"ask\":\"dance\"}\ncut";
    let mut input = Cursor::new(&text[..]);
    let next =
        |input: &mut Cursor<&[u8]>| line(input).map(|text| text.map(|t| super::super::request::<RowsAsk>(&t[..])));
    assert_eq!(next(&mut input).unwrap().unwrap().unwrap(), RowsAsk::Row { row: 1 });
    assert_eq!(next(&mut input).unwrap().unwrap().unwrap_err().code, Code::SettingInvalid);
    assert_eq!(line(&mut input).unwrap_err().code, Code::TooLarge);
    assert_eq!(line(&mut input).unwrap(), None);
}
