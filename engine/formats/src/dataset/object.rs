//! JSON files that begin with an object: what shape their records have, and those that hold them column by column.
//!
//! Not here: records that can be streamed (`array`, `lines`).

use super::array::{Scan, part};
use super::sniff::Container;
use super::stream::{Body, Bytes, Raw};
use minijinja::Value;
use minijinja::value::ValueKind;
use protocol::{Code, Outcome, Problem, limits};
use serde::de::IgnoredAny;

/// Where the records of a JSON document are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Elements of an array.
    Array,
    /// Elements of an array under a key of an object.
    Rows,
    /// Values of an object whose keys are numbers (pandas' `orient="index"`).
    Numbered,
    /// Documents one after the other, over several lines each; one alone is a record.
    Stream,
    /// An object of columns: lists, or objects whose keys are numbers; or pandas' `orient="split"`.
    Columns,
}

/// Keys of an object that have records, and not a part of one.
const ROWS: [&str; 16] = [
    "data",
    "rows",
    "records",
    "examples",
    "samples",
    "items",
    "instances",
    "entries",
    "dataset",
    "questions",
    "train",
    "validation",
    "valid",
    "dev",
    "test",
    "eval",
];

/// True for keys that have records.
pub(super) fn is_rows_key(key: &str) -> bool {
    ROWS.contains(&key.to_ascii_lowercase().as_str())
}

/// A key of an object and how its value begins.
struct Entry<'a> {
    key: String,
    value: &'a [u8],
}

impl Entry<'_> {
    fn opens(&self) -> u8 {
        self.value[0]
    }

    /// The value within the bracket.
    fn inner(&self) -> &[u8] {
        self.value[1..].trim_ascii_start()
    }
}

/// The container of a file that starts with an object. `whole`: the start is all there is.
pub(super) fn container(start: &[u8], whole: bool, ending: &str) -> Container {
    let first = start.split(|b| *b == b'\n').next().unwrap_or_default();
    let single = first.len() == start.trim_ascii_end().len() || first.len() == start.len();
    let is_object = |line: &[u8]| line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok();
    let lines = matches!(ending, "jsonl" | "ndjson");
    if is_object(first.trim_ascii_end()) && (lines || !single || !whole) {
        return Container::Jsonl;
    }
    let (entries, end) = entries(start);
    if let Some(end) = end.filter(|end| is_object(&start[..*end])) {
        let follows = !start[end..].trim_ascii().is_empty() || !whole;
        return match shape(&entries) {
            Some(shape) if !follows => Container::Json(shape),
            _ if single => Container::Jsonl,
            _ => Container::Json(Shape::Stream),
        };
    }
    // Damaged, or larger than the window.
    let others = start.split(|b| *b == b'\n').any(|line| is_object(line.trim_ascii()));
    let closed = first.trim_ascii_end().ends_with(b"}") && !single;
    match shape(&entries).filter(|_| !whole && !lines && !closed) {
        Some(shape) => Container::Json(shape),
        None if closed || others || single => Container::Jsonl,
        None => Container::Json(Shape::Stream),
    }
}

/// The shape of an object by its keys; None for one that is a record.
fn shape(entries: &[Entry]) -> Option<Shape> {
    let digits = |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit());
    if entries.is_empty() || entries.iter().any(is_conversation) {
        return None;
    }
    if entries.iter().all(|e| e.opens() == b'{' && digits(&e.key)) {
        return Some(Shape::Numbered);
    }
    let list = |key: &str| entries.iter().find(|e| e.key == key && e.opens() == b'[');
    let split = list("columns").is_some() && list("data").is_none_or(|data| data.inner().starts_with(b"["));
    if split && entries.iter().all(|e| matches!(e.key.as_str(), "columns" | "index" | "data")) {
        return Some(Shape::Columns);
    }
    if entries.iter().any(|e| is_rows_key(&e.key) && e.opens() == b'[' && e.inner().starts_with(b"{")) {
        return Some(Shape::Rows);
    }
    let plain = |e: &Entry| e.opens() == b'[' && !matches!(e.inner().first(), None | Some(b'{'));
    let numbered =
        |e: &Entry| e.opens() == b'{' && self::entries(e.value).0.first().is_some_and(|first| digits(&first.key));
    match entries.iter().all(|e| e.opens() == b'[') && entries.iter().any(plain) {
        true => Some(Shape::Columns),
        false => entries.iter().all(numbered).then_some(Shape::Columns),
    }
}

/// A list of messages: a part of a record, not a list of them.
fn is_conversation(entry: &Entry) -> bool {
    let message = |keys: &[Entry]| keys.iter().any(|e| matches!(e.key.as_str(), "role" | "from" | "content" | "value"));
    entry.opens() == b'[' && entry.inner().starts_with(b"{") && message(&entries(entry.inner()).0)
}

/// The keys of an object with their values as far as the bytes go, and where the object ends.
fn entries(start: &[u8]) -> (Vec<Entry<'_>>, Option<usize>) {
    let mut entries = Vec::new();
    let space = |at: usize| at + start[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    let value = |at: usize| {
        let (n, done) = part(&mut Scan::default(), &start[at..]);
        done.then_some(at + n)
    };
    let mut at = space(1.min(start.len()));
    while entries.len() < 1000 && start.get(at) == Some(&b'"') {
        let Some(end) = value(at) else { break };
        let Ok(key) = serde_json::from_slice::<String>(&start[at..end]) else { break };
        at = space(end);
        if start.get(at) != Some(&b':') {
            break;
        }
        at = space(at + 1);
        if at >= start.len() {
            break;
        }
        let end = value(at);
        if end == Some(at) {
            break;
        }
        entries.push(Entry { key, value: &start[at..end.unwrap_or(start.len())] });
        let Some(end) = end else { break };
        at = space(end);
        match start.get(at) {
            Some(b',') => at = space(at + 1),
            Some(b'}') => return (entries, Some(at + 1)),
            _ => break,
        }
    }
    let empty = entries.is_empty() && start.get(at) == Some(&b'}');
    (entries, empty.then_some(at + 1))
}

/// Columns in memory.
pub(super) struct Held {
    names: Vec<Value>,
    columns: Vec<Vec<Value>>,
    at: usize,
    length: u64,
}

impl Held {
    /// Reads the whole file. Errors: `TooLarge` beyond `limits::JSON_COLUMNS_BYTES`, `FileMalformed` for what is no JSON or
    /// columns of different lengths.
    pub fn open(mut bytes: Bytes, length: u64) -> Outcome<Held> {
        let path = bytes.path().to_owned();
        let limit = limits::JSON_COLUMNS_BYTES;
        let mut text = Vec::new();
        loop {
            let part = bytes.peek()?;
            if part.is_empty() {
                break;
            }
            let n = part.len();
            text.extend_from_slice(part);
            bytes.consume(n);
            if text.len() as u64 > limit {
                let what = format!(
                    "the JSON file is too large: one that holds its columns one after the other has at most {} MB",
                    limit >> 20
                );
                return Err(Problem::new(Code::TooLarge, what)
                    .file(&path)
                    .remedy("write one record a line (JSON lines)"));
            }
        }
        let malformed = |what: String| Problem::new(Code::FileMalformed, what).file(&path);
        let whole: Value = serde_json::from_slice(&text)
            .map_err(|e| malformed("the file is not JSON".into()).why(e.to_string()).line(e.line() as u64))?;
        drop(text);
        let (names, columns) = columns(&whole).map_err(malformed)?;
        let rows = columns.first().map_or(0, Vec::len);
        if let Some(i) = columns.iter().position(|column| column.len() != rows) {
            let name = |i: usize| names[i].as_str().unwrap_or_default().escape_debug().to_string();
            let what = format!(
                "the columns are of different lengths: \"{}\" has {rows} values, \"{}\" has {}",
                name(0),
                name(i),
                columns[i].len()
            );
            return Err(malformed(what));
        }
        Ok(Held { names, columns, at: 0, length })
    }

    pub fn next(&mut self) -> Outcome<Option<Raw>> {
        let at = self.at;
        if self.columns.first().is_none_or(|column| column.len() <= at) {
            return Ok(None);
        }
        self.at += 1;
        let cells = self
            .names
            .iter()
            .zip(&mut self.columns)
            .map(|(name, column)| (name.clone(), std::mem::take(&mut column[at])));
        Ok(Some(Raw::row(self.at as u64, Ok(Body::Row(Value::from_pairs(cells))))))
    }

    pub fn position(&self) -> u64 {
        let rows = self.columns.first().map_or(0, Vec::len).max(1);
        (u128::from(self.length) * self.at as u128 / rows as u128) as u64
    }
}

/// Names and values of columns.
type Named = (Vec<Value>, Vec<Vec<Value>>);

fn columns(whole: &Value) -> Result<Named, String> {
    let get = |key: &str| whole.get_item(&Value::from(key)).unwrap_or_default();
    let list = |value: &Value| -> Vec<Value> { value.try_iter().map(Iterator::collect).unwrap_or_default() };
    let keys = list(whole);
    let split = |key: &Value| matches!(key.as_str(), Some("columns" | "index" | "data"));
    if keys.iter().all(split) && get("columns").kind() == ValueKind::Seq && get("data").kind() == ValueKind::Seq {
        let names = list(&get("columns"));
        let mut columns = vec![Vec::new(); names.len()];
        for (i, row) in list(&get("data")).iter().enumerate() {
            let cells = list(row);
            if cells.len() != names.len() {
                return Err(format!("row {} has {} values, there are {} columns", i + 1, cells.len(), names.len()));
            }
            columns.iter_mut().zip(cells).for_each(|(column, cell)| column.push(cell));
        }
        return Ok((names, columns));
    }
    let mut columns = Vec::with_capacity(keys.len());
    let mut rows: Option<Vec<Value>> = None;
    for key in &keys {
        let column = whole.get_item(key).unwrap_or_default();
        let name = || key.as_str().unwrap_or_default().escape_debug().to_string();
        columns.push(match column.kind() {
            ValueKind::Seq => list(&column),
            ValueKind::Map => {
                let rows = rows.get_or_insert_with(|| list(&column));
                let cells: Vec<Value> = rows.iter().map(|row| column.get_item(row).unwrap_or_default()).collect();
                if column.len() != Some(rows.len()) || cells.iter().any(Value::is_undefined) {
                    return Err(format!("the column \"{}\" has other rows than the first", name()));
                }
                cells
            }
            _ => return Err(format!("\"{}\" is no column: it is no list", name())),
        });
    }
    Ok((keys, columns))
}
