//! What a file is, by its first bytes; what this version does not read is refused by name.

use crate::folder;
use crate::safetensors::is_pickle;
use protocol::{Code, Outcome, Problem};
use serde::de::IgnoredAny;
use std::io::Read;
use std::path::Path;

/// Bytes looked at.
const WINDOW: usize = 64 * 1024;
/// UTF-8 byte-order mark.
pub(super) const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Containers this version reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Jsonl,
    Json,
    Text,
}

impl Container {
    pub fn name(self) -> &'static str {
        match self {
            Container::Jsonl => "jsonl",
            Container::Json => "json",
            Container::Text => "text",
        }
    }
}

/// The container of a file and its length.
pub(super) fn container(path: &Path) -> Outcome<(Container, u64)> {
    let mut file = folder::open(path)?;
    let length = folder::length(&file, path)?;
    let start = first_bytes(&mut file, path)?;
    if start.is_empty() {
        let what = if length == 0 { "the file is empty (0 bytes)" } else { "the file is empty: only white space" };
        return Err(Problem::new(Code::FileEmpty, what).file(path).remedy("give a file with rows"));
    }
    foreign(&start).map_err(|p| p.file(path))?;
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    let container = of_text(&start, &ending).map_err(|p| p.file(path))?;
    Ok((container, length))
}

/// The start of the file from its first byte that is neither mark nor white space.
fn first_bytes(file: &mut std::fs::File, path: &Path) -> Outcome<Vec<u8>> {
    let mut start: Vec<u8> = Vec::new();
    let mut first = true;
    loop {
        let mut part = Vec::new();
        let wanted = (WINDOW - start.len()) as u64;
        file.take(wanted).read_to_end(&mut part).map_err(|e| Problem::io(&e, "reading the data", path))?;
        let ended = part.is_empty();
        if first && part.starts_with(BOM) {
            part.drain(..BOM.len());
        }
        first = false;
        start.extend(part);
        let blank = start.iter().take_while(|b| b.is_ascii_whitespace()).count();
        start.drain(..blank);
        if ended || start.len() == WINDOW {
            return Ok(start);
        }
    }
}

/// Files that are no text of ours, by their magic numbers.
fn foreign(start: &[u8]) -> Outcome<()> {
    let later = |what: &str| Err(Problem::new(Code::NotSupported, format!("{what} come with a later version")));
    let unknown = |what: &str| {
        let problem = Problem::new(Code::FormatUnknown, format!("this is {what}, not a data set"));
        Err(problem.remedy("give JSON lines, a JSON array of records, or plain text in UTF-8"))
    };
    let is = |magic: &[u8]| start.starts_with(magic);
    let lower: Vec<u8> = start.iter().take(64).map(u8::to_ascii_lowercase).collect();
    match () {
        _ if is(b"PAR1") => later("Parquet files (their decoded size has to be limited first)"),
        _ if is(b"ARROW1") => later("Arrow files"),
        _ if is(b"PK\x03\x04") || is(b"PK\x05\x06") => later("zip archives are not supported: they"),
        _ if is(b"\x1f\x8b") || is(b"\x28\xb5\x2f\xfd") || is(b"\xfd7zXZ") || is(b"BZh") || is(b"7z\xbc\xaf") => {
            later("compressed files are not supported: they")
        }
        _ if start.get(257..262) == Some(b"ustar") => later("tar archives are not supported: they"),
        _ if is_pickle(start) => Err(Problem::new(
            Code::CodeInFile,
            "this is a pickle, which can run code when it is loaded; it was not opened",
        )
        .remedy("export the data as JSON lines")),
        _ if is(b"GGUF") => unknown("a GGUF model"),
        _ if start.get(8) == Some(&b'{') && start.get(4..8) == Some(&[0; 4]) => unknown("a weights file"),
        _ if is(b"%PDF") => unknown("a PDF document"),
        _ if is(b"\x89PNG") || is(b"\xff\xd8\xff") || is(b"GIF8") || is(b"RIFF") => unknown("an image or a recording"),
        _ if is(b"\x7fELF") || is(b"MZ\x90") => unknown("a program"),
        _ if is(b"SQLite format 3") => unknown("a database"),
        _ if is(b"\xff\xfe") || is(b"\xfe\xff") => {
            Err(Problem::new(Code::FormatUnknown, "the file is UTF-16; text is read as UTF-8")
                .remedy("save it as UTF-8"))
        }
        _ if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") => unknown("a web page"),
        _ if lower.starts_with(b"<?xml") => unknown("an XML document"),
        _ if start.contains(&0) => unknown("a binary file"),
        _ => Ok(()),
    }
}

fn of_text(start: &[u8], ending: &str) -> Outcome<Container> {
    let first = start.split(|b| *b == b'\n').next().unwrap_or_default();
    let is_json = |line: &[u8]| serde_json::from_slice::<IgnoredAny>(line).is_ok();
    let named_json = matches!(ending, "json" | "jsonl" | "ndjson");
    match start[0] {
        b'{' if is_one_object(start, first) => Err(Problem::new(
            Code::LayoutUnknown,
            "the file is one JSON object over several lines, not a list of records",
        )
        .remedy("write one record a line (JSON lines), or an array of records")),
        b'{' => Ok(Container::Jsonl),
        b'[' => {
            let next = start[1..].iter().find(|b| !b.is_ascii_whitespace());
            match next {
                Some(b'{' | b']') => Ok(Container::Json),
                _ if is_json(first) => Ok(Container::Jsonl),
                _ if named_json => Ok(Container::Json),
                _ => Ok(Container::Text),
            }
        }
        _ if named_json => Ok(Container::Jsonl),
        _ if is_table(start, ending) => {
            Err(Problem::new(Code::NotSupported, "tables of separated values (CSV, TSV) come with a later version")
                .remedy("save the table as JSON lines"))
        }
        _ => Ok(Container::Text),
    }
}

/// An object whose first line is not whole and no other line of the window is an object by itself.
fn is_one_object(start: &[u8], first: &[u8]) -> bool {
    let object = |line: &[u8]| line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok();
    let cut = first.len() == start.len();
    let closed = first.trim_ascii_end().ends_with(b"}");
    !cut && !closed && !start.split(|b| *b == b'\n').any(|line| object(line.trim_ascii()))
}

/// The same number of separators in each of several lines under a line of short names.
fn is_table(start: &[u8], ending: &str) -> bool {
    let text = String::from_utf8_lossy(start);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).take(20).collect();
    // The last line of a full window may be cut.
    let lines = if start.len() == WINDOW && lines.len() > 1 { &lines[..lines.len() - 1] } else { &lines[..] };
    [',', '\t', ';'].iter().any(|separator| {
        let counts: Vec<usize> = lines.iter().map(|l| l.matches(*separator).count()).collect();
        let named = matches!(ending, "csv" | "tsv") && counts.first().is_some_and(|n| *n > 0);
        let header = lines.first().is_some_and(|l| l.split(*separator).all(is_column_name));
        named || (header && lines.len() >= 3 && counts[0] > 0 && counts.iter().all(|n| *n == counts[0]))
    })
}

fn is_column_name(cell: &str) -> bool {
    let cell = cell.trim().trim_matches('"');
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    !cell.is_empty() && cell.len() <= 64 && cell.chars().all(word)
}
