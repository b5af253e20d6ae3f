//! Tables of separated values: a header of names, then a row a record. Quotes are read as RFC 4180 writes them and Python's
//! `csv` reads them: only where a cell begins, doubled for one, line breaks and separators within them.
//!
//! Not here: which separator a file has is asked of `separator`, when is decided in `sniff`.

use super::encoding;
use super::stream::{Body, Bytes, Raw};
use minijinja::Value;
use protocol::limits::RECORD_BYTES;
use protocol::{Code, Outcome, Problem};
use std::collections::HashSet;

/// Most columns; a table of more is no list of records.
const COLUMNS: usize = 10_000;
/// Longest name of a column, in bytes: more is a text, and the table has no header.
const NAME: usize = 200;
/// Rows of the start of a file that have to agree on the number of their cells.
const SAMPLED: usize = 20;

/// A table that is being read.
pub(super) struct Csv {
    pub(super) bytes: Bytes,
    separator: u8,
    names: Vec<Value>,
    done: bool,
}

/// Where in a row the scan is.
#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    #[default]
    Begin,
    Plain,
    Quoted,
    /// After a quote within quotes: the first of two, or the last.
    Quote,
}

impl State {
    fn next(self, byte: u8, separator: u8) -> State {
        match (self, byte) {
            (State::Begin, b'"') => State::Quoted,
            (State::Quoted, b'"') => State::Quote,
            (State::Quoted, _) => State::Quoted,
            (State::Quote, b'"') => State::Quoted,
            (_, b) if b == separator => State::Begin,
            _ => State::Plain,
        }
    }

    fn ends_row(self, byte: u8) -> bool {
        self != State::Quoted && matches!(byte, b'\n' | b'\r')
    }
}

/// The bytes of a row as they are in the file, without its end.
struct Row {
    line: u64,
    bytes: Vec<u8>,
    too_long: bool,
    /// Line of the quote that does not close.
    open: Option<u64>,
}

impl Csv {
    /// Reads the header. Errors: `FileMalformed` for names that are there twice, `LayoutUnknown` where the first line is
    /// no header.
    pub fn open(bytes: Bytes, separator: u8) -> Outcome<Csv> {
        let mut table = Csv { bytes, separator, names: Vec::new(), done: false };
        let Some(header) = table.row()? else { return Ok(table) };
        let path = table.bytes.path().to_owned();
        let bad = |code, what: &str| Problem::new(code, what).file(&path).line(header.line);
        if let Some(line) = header.open {
            let what = format!("a quote in the header does not close: it opened in line {line}");
            return Err(
                bad(Code::FileMalformed, &what).remedy("close the quote, or double it where it is meant as it is")
            );
        }
        if header.too_long {
            return Err(bad(Code::TooLarge, "the header is too large"));
        }
        let text = encoding::text(header.bytes, header.line, table.bytes.encoding());
        let text = text.map_err(|(_, what)| bad(Code::RowNotUtf8, &format!("the header cannot be read: {what}")))?;
        let names = names(cells(&text, separator)).map_err(|p| p.file(&path).line(header.line))?;
        table.names = names.iter().map(|name| Value::from(name.as_str())).collect();
        Ok(table)
    }

    pub fn next(&mut self) -> Outcome<Option<Raw>> {
        let Some(row) = self.row()? else { return Ok(None) };
        let line = row.line;
        Ok(Some(Raw::row(line, self.body(row))))
    }

    fn body(&self, row: Row) -> Result<Body, (Code, String)> {
        if let Some(line) = row.open {
            let what = format!("the quote that opens in line {line} does not close; nothing after it was read");
            return Err((Code::QuoteOpen, what));
        }
        if row.too_long {
            return Err((Code::TooLarge, format!("too large: a record has at most {RECORD_BYTES} bytes")));
        }
        let text = encoding::text(row.bytes, row.line, self.bytes.encoding())?;
        let cells = cells(&text, self.separator);
        if cells.len() != self.names.len() {
            let fields = if cells.len() == 1 { "field" } else { "fields" };
            let what = format!("the row has {} {fields}, the header has {}", cells.len(), self.names.len());
            return Err((Code::FieldsDiffer, what));
        }
        Ok(Body::Row(Value::from_pairs(self.names.iter().cloned().zip(cells))))
    }

    /// The next row that is not blank; one that is too long is passed over without being kept.
    fn row(&mut self) -> Outcome<Option<Row>> {
        loop {
            if self.done || self.bytes.peek()?.is_empty() {
                return Ok(None);
            }
            let row = self.scan()?;
            if !row.bytes.is_empty() || row.too_long || row.open.is_some() {
                return Ok(Some(row));
            }
        }
    }

    fn scan(&mut self) -> Outcome<Row> {
        let mut row = Row { line: self.bytes.line, bytes: Vec::new(), too_long: false, open: None };
        let (mut state, mut opened) = (State::Begin, 0);
        loop {
            let line = self.bytes.line;
            let buffer = self.bytes.peek()?;
            let (mut n, mut lines, mut end) = (buffer.len(), 0, buffer.is_empty());
            for (i, byte) in buffer.iter().enumerate() {
                if state.ends_row(*byte) {
                    (n, end) = (i, true);
                    break;
                }
                let next = state.next(*byte, self.separator);
                if state == State::Begin && next == State::Quoted {
                    opened = line + lines;
                }
                lines += u64::from(*byte == b'\n');
                state = next;
            }
            row.too_long |= row.bytes.len() + n > RECORD_BYTES;
            if row.too_long {
                row.bytes = Vec::new();
            } else {
                row.bytes.extend_from_slice(&buffer[..n]);
            }
            self.bytes.consume(n);
            let endless = row.too_long && state == State::Quoted;
            if state == State::Quoted && (end || endless) {
                // What follows a stray quote is all within it: reading on would take rows for parts of a text.
                self.done = true;
                row.open = Some(opened);
                return Ok(row);
            }
            if end {
                self.line_end()?;
                return Ok(row);
            }
        }
    }

    fn line_end(&mut self) -> Outcome<()> {
        if self.bytes.byte()? == Some(b'\r') {
            self.bytes.consume(1);
        }
        if self.bytes.byte()? == Some(b'\n') {
            self.bytes.consume(1);
        }
        Ok(())
    }
}

/// The cells of a row.
fn cells(row: &str, separator: u8) -> Vec<String> {
    let (mut cells, mut cell, mut state) = (Vec::new(), Vec::new(), State::Begin);
    for byte in row.bytes() {
        let next = state.next(byte, separator);
        match (state, next) {
            (State::Quoted, State::Quote) | (State::Begin, State::Quoted) => {}
            (_, State::Begin) => cells.push(std::mem::take(&mut cell)),
            _ => cell.push(byte),
        }
        state = next;
    }
    cells.push(cell);
    // Cut at ASCII bytes only, so that each is text as the whole is.
    cells.into_iter().map(|cell| String::from_utf8_lossy(&cell).into_owned()).collect()
}

/// Names of the columns; one without a name is called by its number.
fn names(header: Vec<String>) -> Outcome<Vec<String>> {
    if header.len() > COLUMNS {
        return Err(Problem::new(Code::TooLarge, format!("the table has more than {COLUMNS} columns")));
    }
    let is_text = |name: &String| name.len() > NAME || name.contains(['\n', '\r']);
    let numbers = header.iter().filter(|name| name.trim().parse::<f64>().is_ok()).count();
    if header.iter().any(is_text) || numbers * 2 > header.len() {
        let first: String =
            header.iter().map(|cell| cell.chars().take(30).collect::<String>()).take(3).collect::<Vec<_>>().join(" | ");
        let what = format!(
            "the table has no header: its first line is a row ({}), not names of columns",
            first.escape_debug()
        );
        return Err(
            Problem::new(Code::LayoutUnknown, what).remedy("put a line with the names of the columns before it")
        );
    }
    let mut seen = HashSet::new();
    let mut names = Vec::with_capacity(header.len());
    for (i, name) in header.into_iter().enumerate() {
        let name = match name.trim() {
            "" => format!("column {}", i + 1),
            name => name.to_owned(),
        };
        if !seen.insert(name.clone()) {
            let what = format!("two columns have the name \"{}\"", name.escape_debug());
            return Err(Problem::new(Code::FileMalformed, what).remedy("give every column a name of its own"));
        }
        names.push(name);
    }
    Ok(names)
}

/// The separator of a table that starts like this; None where it is none. `whole`: the start is all there is.
pub(super) fn separator(start: &[u8], ending: &str, whole: bool) -> Option<u8> {
    let named = matches!(ending, "csv" | "tsv" | "tab");
    let candidates = if matches!(ending, "tsv" | "tab") { [b'\t', b',', b';'] } else { [b',', b'\t', b';'] };
    let mut best: Option<(u8, (bool, usize))> = None;
    for separator in candidates {
        let rows = sample(start, separator, whole);
        let Some(header) = rows.first() else { continue };
        let (columns, agree) = (header.len(), rows.iter().all(|row| row.len() == header.len()));
        let table = columns > 1 && agree && rows.len() >= 3 && header.iter().all(|name| is_name(name));
        let score = (agree, columns);
        if columns > 1 && (named || table) && best.is_none_or(|(_, other)| score > other) {
            best = Some((separator, score));
        }
    }
    // A table of one column has no separator at all.
    best.map(|(separator, _)| separator).or(named.then_some(candidates[0]))
}

/// Cells of the first rows, the last of which may be cut.
fn sample(start: &[u8], separator: u8, whole: bool) -> Vec<Vec<String>> {
    let (mut rows, mut from, mut state) = (Vec::new(), 0, State::Begin);
    for (i, byte) in start.iter().enumerate() {
        if rows.len() == SAMPLED {
            return rows;
        }
        if state.ends_row(*byte) {
            if i > from {
                rows.push(cells(&String::from_utf8_lossy(&start[from..i]), separator));
            }
            (from, state) = (i + 1, State::Begin);
        } else {
            state = state.next(*byte, separator);
        }
    }
    if from < start.len() && ((whole && state != State::Quoted) || rows.is_empty()) {
        rows.push(cells(&String::from_utf8_lossy(&start[from..]), separator));
    }
    rows
}

fn is_name(cell: &str) -> bool {
    let cell = cell.trim();
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
    !cell.is_empty() && cell.len() <= 64 && cell.chars().all(word) && cell.split(' ').count() <= 3
}
