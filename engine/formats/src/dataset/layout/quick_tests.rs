//! What the quick look says of a row is what a full look says.

use super::super::{Options, Rules};
use super::quick::Quick;
use super::{Layout, Probe, Reading, add_columns, parse};
use proptest::prelude::*;

/// The layout of a row, and whether both looks find the row plain.
fn looks(first: &str, row: &str) -> (bool, Option<bool>) {
    let layout = Probe::default().row(&parse(first).unwrap(), 100).unwrap();
    let mut columns = Vec::new();
    for row in [first, row] {
        let _ = parse(row).and_then(|row| add_columns(&row, &mut columns, 100));
    }
    let quick = Quick::of(&layout, false).map(|mut quick| {
        quick.learn(&columns);
        quick.is_plain(row)
    });
    (full(&layout, row), quick)
}

/// True where the full look gives a record and converts nothing.
fn full(layout: &Layout, row: &str) -> bool {
    let rules = Rules::of(&Options::default()).unwrap();
    let mut reading = Reading::new(&rules);
    let content = parse(row).and_then(|row| layout.content(&row, &mut reading));
    content.is_ok() && reading.converted.is_empty()
}

const ALPACA: &str = r#"{"instruction":"a","input":"","output":"b","id":1,"meta":{"k":[1,null,"x"]},"system":null}"#;
const CHAT: &str = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"source":"s"}"#;
const SHARED: &str = r#"{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}],"id":"7"}"#;
const TEXT: &str = r#"{"text":"words","url":"u"}"#;

#[test]
fn usual_rows_need_no_full_look() {
    for row in [ALPACA, CHAT, SHARED, TEXT] {
        assert_eq!(looks(row, row), (true, Some(true)), "{row}");
    }
    let spaced = r#" { "text" : "\u00e9 \n \"x\"" , "url" : null } "#;
    assert_eq!(looks(TEXT, spaced), (true, Some(true)));
}

#[test]
fn whatever_is_odd_takes_a_full_look() {
    for (first, row) in [
        (ALPACA, r#"{"instruction":"a","input":"","output":" "}"#),
        (ALPACA, r#"{"instruction":"a","output":"b","output":"c"}"#),
        (ALPACA, r#"{"instruction":"a","output":"b","images":["x.png"]}"#),
        (ALPACA, r#"{"instruction":"a","output":"b","history":[["q","a"]]}"#),
        (ALPACA, r#"{"instruction":"a","output":7}"#),
        (CHAT, r#"{"messages":[{"role":"user","content":"q"}]}"#),
        (CHAT, r#"{"messages":[{"role":"user","content":"q"},{"role":"robot","content":"a"}]}"#),
        (CHAT, r#"{"messages":[{"role":"assistant","content":""}]}"#),
        (CHAT, r#"{"messages":[{"role":"assistant","content":"a","tool_calls":[]}]}"#),
        (CHAT, r#"{"messages":[{"role":"assistant","content":"a"}],"tools":"[{}]"}"#),
        (TEXT, r#"{"text":"a","url":"\ud800"}"#),
        (TEXT, r#"{"text":"a","url":1e999}"#),
        (TEXT, r#"{"text":"a"} x"#),
        (TEXT, r#"{"text":"a""#),
        (TEXT, "[1]"),
    ] {
        assert_eq!(looks(first, row).1, Some(false), "{row}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_row_that_the_quick_look_passes_is_one_that_the_full_look_passes(
        which in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&b"\"{}[],:\\ nulteru0d8\xc3\xa9-e.7"[..]), 0u8..3), 0..4),
    ) {
        let first = [ALPACA, CHAT, SHARED, TEXT][which];
        let mut row = first.as_bytes().to_vec();
        for (at, byte, how) in changes {
            let at = at.index(row.len());
            match how {
                0 => row[at] = byte,
                1 => row.insert(at, byte),
                _ => { row.remove(at); }
            }
            if row.is_empty() {
                row.push(b'{');
            }
        }
        if let Ok(row) = std::str::from_utf8(&row) {
            let (full, quick) = looks(first, row);
            prop_assert!(full || quick != Some(true), "{}", row);
        }
    }
}
