//! Tables of separated values.

use super::*;
use crate::dataset::stream::Body;
use minijinja::Value;

/// Names of columns, the cells of every row, and what was wrong with the others.
type Read = (Vec<String>, Vec<Vec<String>>, Vec<String>);

fn table(name: &str, bytes: impl AsRef<[u8]>) -> Outcome<Read> {
    let dropped = Dropped::new(name, bytes);
    let path = dropped.dir.path().join(name);
    let kind = sniff::kind(&path, None)?;
    assert!(matches!(kind.container, Container::Csv(_)), "{:?}", kind.container);
    let mut source = Source::open(&path, &kind)?;
    let (mut names, mut rows, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(raw) = source.next()? {
        match raw.body {
            Ok(Body::Row(row)) => {
                names = row.try_iter().unwrap().map(|k| k.as_str().unwrap().to_owned()).collect();
                let cell = |k: &String| row.get_item(&Value::from(k.as_str())).unwrap().as_str().unwrap().to_owned();
                rows.push(names.iter().map(cell).collect());
            }
            Ok(_) => panic!("no row of a table"),
            Err((_, what)) => problems.push(format!("line {}: {what}", raw.line)),
        }
    }
    Ok((names, rows, problems))
}

fn cells(bytes: impl AsRef<[u8]>) -> Vec<Vec<String>> {
    let (_, rows, problems) = table("a.csv", bytes).unwrap();
    assert_eq!(problems, Vec::<String>::new());
    rows
}

#[test]
fn quotes_line_breaks_and_marks_are_read_as_spreadsheets_write_them() {
    let control = inspect(&corpus("ok/quoted_newline.csv"), &Options::default()).unwrap();
    assert_eq!((control.rows, control.usable_rows, control.container.as_str()), (2, 2, "csv"));
    assert_eq!(cells("\u{FEFF}id,text\r\n1,\"a\r\nb, \"\"c\"\"\"\r\n2,\r\n"), [["1", "a\r\nb, \"c\""], ["2", ""]]);
    assert_eq!(cells("\"id\",\"text\"\n\n1,x \"y\" z\n\n\n2,\"q\"r"), [["1", "x \"y\" z"], ["2", "qr"]]);
    assert_eq!(cells("text\nhello\n\"a,b\"\n"), [["hello"], ["a,b"]]);
    let (names, rows, _) = table("a.tsv", "q\ta\n1,5\t\"x\ty\"\n").unwrap();
    assert_eq!((names, rows), (vec!["q".to_owned(), "a".into()], vec![vec!["1,5".to_owned(), "x\ty".into()]]));
    let (_, rows, _) = table("a.csv", "frage;antwort\n\"1,5; 2\";ja, gut\n3;nein, nie\n").unwrap();
    assert_eq!(rows, [["1,5; 2", "ja, gut"], ["3", "nein, nie"]]);
    let (_, rows, _) = table("data", "instruction,output\n1,2\n3,4\n").unwrap();
    assert_eq!(rows, [["1", "2"], ["3", "4"]]);
}

#[test]
fn a_row_with_other_fields_than_the_header_names_both_counts() {
    let facts = inspect(&corpus("D28_ragged.csv"), &Options::default()).unwrap();
    let first = &facts.problems[0];
    assert_eq!((first.line, first.code, facts.rows, facts.usable_rows), (7, Code::RowInvalid, 7, 6));
    assert!(first.message.contains("ragged.csv, line 7: the row has 5 fields, the header has 3"), "{first:?}");
}

#[test]
fn a_quote_that_never_closes_is_named_where_it_opened() {
    let facts = inspect(&corpus("D29_open_quote.csv"), &Options::default()).unwrap();
    let first = &facts.problems[0];
    assert_eq!((first.line, facts.rows, facts.usable_rows), (4, 3, 2));
    assert!(
        first.message.contains("open_quote.csv") && first.message.contains("quote that opens in line 4"),
        "{first:?}"
    );
    // Where the row began earlier than its quote.
    let (_, _, problems) = table("a.csv", "a,b\n\"x\ny\",\"z\nz\nz").unwrap();
    assert!(problems.len() == 1 && problems[0].contains("opens in line 3"), "{problems:?}");
    // A header.
    assert!(facts_of("\"a,b\n1,2\n3,4\n").unwrap_err().what.contains("line 1"));
}

fn facts_of(text: &str) -> Outcome<DatasetFacts> {
    super::facts("a.csv", text)
}

#[test]
fn an_open_quote_in_a_large_file_is_not_read_to_its_end() {
    let mut file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    write!(file, "id,text\n1,fine\n2,\"open\n").unwrap();
    file.write_all(&b"more and more\n".repeat(3 * limits::RECORD_BYTES / 14)).unwrap();
    let mut records = read(&[file.path().to_owned()], &Options::default()).unwrap();
    let rows: Vec<Row> = records.by_ref().map(Result::unwrap).collect();
    assert!(matches!(&rows[1], Row::Problem(p) if p.message.contains("quote that opens in line 3")), "{rows:?}");
    assert!(rows.len() == 2 && records.row == 2);
}

#[test]
fn headers_that_name_nothing_are_named() {
    for (text, code, words) in [
        ("text,text\na,b\nc,d\n", Code::FileMalformed, "two columns have the name \"text\""),
        ("1,2.5\n3,4\n5,6\n", Code::LayoutUnknown, "no header"),
        (&format!("{},x\na,b\n", "long ".repeat(100)), Code::LayoutUnknown, "no header"),
        ("id,frage\n1,a\n", Code::LayoutUnknown, "id, frage"),
    ] {
        let problem = facts_of(text).unwrap_err();
        assert!(
            problem.code == code && problem.sentence().contains(words) && problem.place.file.is_some(),
            "{problem}"
        );
    }
    // What pandas leaves over its index.
    let (names, _, _) = table("a.csv", ",text\n0,a\n1,b\n").unwrap();
    assert_eq!(names, ["column 1", "text"]);
    assert_eq!(facts_of("text,label\n").unwrap_err().code, Code::FileEmpty);
}

#[test]
fn a_table_of_prompts_and_answers_is_trained_on() {
    let dropped = Dropped::new("a.csv", "instruction,input,output\n\"Add\",\"1,1\",2\nHi,,Yo\n");
    let said: Vec<_> = dropped.records().iter().map(said).collect();
    assert_eq!((said[0][0].1.as_str(), said[1][0].1.as_str(), said[1][1].1.as_str()), ("Add\n1,1", "Hi", "Yo"));
}

/// A cell of everything that means something in a table.
fn awkward() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec![
            "\"", ",", "\n", "\r\n", "\r", ";", "\t", " ", "a", "é", "語", "\"\"", "'", "\\", "x y",
        ]),
        0..6,
    )
    .prop_map(|parts| parts.concat())
}

fn quoted(cell: &str) -> String {
    format!("\"{}\"", cell.replace('"', "\"\""))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cells_come_back_as_they_were_written(rows in prop::collection::vec(prop::collection::vec(awkward(), 3), 1..8), crlf in any::<bool>()) {
        let end = if crlf { "\r\n" } else { "\n" };
        let mut text = format!("a,b,c{end}");
        for row in &rows {
            let line: Vec<String> = row.iter().map(|c| quoted(c)).collect();
            text.push_str(&line.join(","));
            text.push_str(end);
        }
        prop_assert_eq!(cells(text), rows);
    }

    #[test]
    fn any_text_is_read_as_the_reference_reads_it(parts in prop::collection::vec(awkward(), 1..30)) {
        let text = format!("a,b\n{}", parts.join(","));
        let mut reference = ::csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
        let theirs: Vec<Vec<String>> = reference.records().map(|r| r.unwrap().iter().map(str::to_owned).collect()).collect();
        let (_, ours, problems) = table("a.csv", &text).unwrap();
        if problems.iter().all(|p| p.contains("fields") || p.contains("field,")) {
            let whole: Vec<Vec<String>> = theirs.into_iter().filter(|row| row.len() == 2).collect();
            prop_assert_eq!(ours, whole);
        }
    }
}

/// Writes tables of random awkward cells, as far as Python's own writer and by hand, and prints how it reads them.
const PYTHON: &str = r#"
import csv, io, json, random, sys
csv.field_size_limit(1 << 30)
rng = random.Random(7)
parts = ['"', ',', '\n', '\r\n', ';', '\t', ' ', 'a', 'é', '語', '""', "'", '\\', 'x y', '']
out = []
for case in range(300):
    if case % 2:
        text = io.StringIO()
        writer = csv.writer(text, quoting=rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]), lineterminator=rng.choice(['\n', '\r\n']))
        writer.writerow(['a', 'b'])
        for _ in range(5):
            writer.writerow([''.join(rng.choices(parts, k=4)) for _ in range(2)])
        text = text.getvalue()
    else:
        text = 'a,b\n' + ''.join(rng.choices(parts, k=40))
    reader = csv.reader(io.StringIO(text, newline=''))
    try:
        rows = [row for row in list(reader)[1:] if row]
    except csv.Error:
        continue
    out.append({'text': text, 'rows': rows})
json.dump(out, sys.stdout)
"#;

#[test]
fn pythons_reader_sees_the_same_cells() {
    let Ok(output) = std::process::Command::new("python3").args(["-c", PYTHON]).output() else {
        println!("skipped: there is no python3 here");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cases: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut compared = 0;
    for case in &cases {
        let text = case["text"].as_str().unwrap();
        let theirs: Vec<Vec<String>> = serde_json::from_value(case["rows"].clone()).unwrap();
        let (_, ours, problems) = table("a.csv", text).unwrap();
        if problems.iter().any(|p| p.contains("does not close")) {
            continue;
        }
        let whole: Vec<Vec<String>> = theirs.into_iter().filter(|row| row.len() == 2).collect();
        assert_eq!(ours, whole, "{text:?}");
        compared += ours.len();
    }
    assert!(cases.len() > 200 && compared > 500, "{} {compared}", cases.len());
}
