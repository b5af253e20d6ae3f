//! Text that is not UTF-8.

use super::*;
use encoding_rs::{Encoding, GB18030, UTF_16LE, WINDOWS_1252};

fn encoded(text: &str, encoding: &'static Encoding) -> Vec<u8> {
    if encoding == UTF_16LE {
        return [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    }
    encoding.encode(text).0.into_owned()
}

fn with(dropped: &Dropped, encoding: &str) -> Outcome<(DatasetFacts, Vec<Row>)> {
    let options = Options { encoding: Some(encoding.into()), ..Options::default() };
    let path = dropped.dir.path();
    Ok((inspect(path, &options)?, read(&[path.to_owned()], &options)?.map(Result::unwrap).collect()))
}

const GERMAN: &str = "instruction,output\nWie heißt das Café?,Schön grün\nGröße?,süß\n";
const CHINESE: &str = "instruction,output\n你好，你叫什么名字？,我是一个语言模型。\n北京在哪里？,在中国。\n";

#[test]
fn a_table_in_another_encoding_is_asked_about_and_never_replaced() {
    for (text, encoding, name) in
        [(GERMAN, WINDOWS_1252, "windows-1252"), (CHINESE, GB18030, "gb18030"), (CHINESE, UTF_16LE, "utf-16le")]
    {
        let dropped = Dropped::new("a.csv", encoded(text, encoding));
        for asked in [None, Some("utf-8".to_owned())] {
            let problem = inspect(dropped.dir.path(), &Options { encoding: asked, ..Options::default() }).unwrap_err();
            assert_eq!(
                (problem.code, problem.ways[0].set["data.encoding"].as_str()),
                (Code::EncodingUnconfirmed, name)
            );
            let line = text.lines().nth(1).unwrap();
            assert!(problem.why.contains(line) && problem.sentence().contains("a.csv"), "{problem}");
        }
        let (facts, rows) = with(&dropped, name).unwrap();
        assert_eq!((facts.rows, facts.usable_rows), (2, 2), "{name}: {facts:?}");
        let Row::Record(record) = &rows[0] else { panic!() };
        assert_eq!(
            format!("{},{}", said(&record.content)[0].1, said(&record.content)[1].1),
            text.lines().nth(1).unwrap()
        );
    }
    let text = Dropped::new("a.txt", encoded(&GERMAN.replace(',', " "), WINDOWS_1252));
    assert_eq!(text.facts().unwrap_err().code, Code::EncodingUnconfirmed);
    assert_eq!(with(&text, "latin1").unwrap().0.usable_rows, 1);
    // Lines of JSON, most of them in another encoding.
    let lines = Dropped::new("a.jsonl", encoded("{\"text\":\"你好\"}\n{\"text\":\"北京\"}\n", GB18030));
    assert_eq!(lines.facts().unwrap_err().code, Code::EncodingUnconfirmed);
    assert_eq!(with(&lines, "gbk").unwrap().0.usable_rows, 2);
}

#[test]
fn a_cut_character_is_named_by_line_and_column() {
    let whole = "id,text\n1,schön grün\n2,ein Café";
    let dropped = Dropped::new("a.csv", &whole.as_bytes()[..whole.len() - 1]);
    let facts = dropped.facts().unwrap();
    assert_eq!((facts.rows, facts.usable_rows, facts.problems[0].code), (2, 1, Code::RowNotUtf8));
    assert!(
        facts.problems[0].message.contains("a.csv, line 3: not UTF-8")
            && facts.problems[0].message.contains("at column 10"),
        "{facts:?}"
    );
    // Within a quoted cell of several lines, and followed by more.
    let mut bytes = b"id,text\n1,\"sch\xc3\xb6n\ngr\xc3\xbc\xc3\xbcn\nCaf\xc3".to_vec();
    bytes.extend(b"\"\n2,fine\n");
    let facts = super::facts("a.csv", bytes).unwrap();
    assert_eq!((facts.rows, facts.usable_rows), (2, 1));
    assert!(facts.problems[0].message.contains("line 4, column 4"), "{facts:?}");
}

#[test]
fn bytes_that_are_not_of_the_confirmed_encoding_are_a_row_problem() {
    let mut bytes = encoded(CHINESE, GB18030);
    bytes.extend(b"abc\xff\xff,x\ngood,row\n");
    let dropped = Dropped::new("a.csv", bytes);
    let (facts, _) = with(&dropped, "gb18030").unwrap();
    assert_eq!((facts.rows, facts.usable_rows), (4, 3), "{facts:?}");
    let message = &facts.problems[0].message;
    assert!(message.contains("a.csv, line 4: not gb18030") && message.contains("at column 4"), "{message}");
}

#[test]
fn an_unknown_encoding_lists_known_ones_and_a_mark_outweighs_the_setting() {
    let dropped = Dropped::new("a.csv", "id,text\n1,a\n");
    let problem = with(&dropped, "klingon").unwrap_err();
    assert!(problem.code == Code::SettingInvalid && problem.what.contains("gb18030"), "{problem}");
    let marked = Dropped::new("a.csv", format!("\u{FEFF}{CHINESE}"));
    marked.add("b.csv", CHINESE);
    marked.add("c.csv", encoded(CHINESE, GB18030));
    let (facts, rows) = with(&marked, "gb18030").unwrap();
    assert_eq!(facts.usable_rows, 6);
    for same in [&rows[2], &rows[4]] {
        assert!(matches!((same, &rows[0]), (Row::Record(a), Row::Record(b)) if a.content == b.content));
    }
    assert!(matches!(&rows[0], Row::Record(r) if said(&r.content)[1].1 == "我是一个语言模型。"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_decoded_file_is_the_text_that_was_encoded(text in "[a-zé語ß \\n]{1,40}", repeat in 1usize..3000) {
        let whole = format!("x{}", text.repeat(repeat));
        let dropped = Dropped::new("a.txt", encoded(&whole, UTF_16LE));
        let (_, rows) = with(&dropped, "utf-16le").unwrap();
        let read: String = rows.iter().filter_map(|row| match row { Row::Record(Record { content: Content::Text(t), .. }) => Some(t.as_str()), _ => None }).collect();
        if rows.iter().all(|row| matches!(row, Row::Record(_))) {
            prop_assert_eq!(read, whole);
        }
    }

    #[test]
    fn any_bytes_in_any_encoding_end_in_rows_or_a_refusal(bytes in prop::collection::vec(any::<u8>(), 1..400), name in prop::sample::select(vec!["utf-16le", "utf-16be", "gb18030", "big5", "shift_jis", "iso-2022-jp", "windows-1252"]), ending in "(jsonl|json|txt|csv)") {
        let dropped = Dropped::new(&format!("a.{ending}"), bytes);
        let _ = with(&dropped, name);
    }
}
