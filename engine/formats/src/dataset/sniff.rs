//! What a file is, by its first bytes; what this version does not read is refused by name.

use super::encoding::{self, By};
use super::object::{self, Shape};
use super::{arrow, csv, parquet};
use crate::folder;
use crate::safetensors::is_pickle;
use encoding_rs::Encoding;
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
    Json(Shape),
    Text,
    /// Separated values, by the separator.
    Csv(u8),
    Parquet,
    Arrow,
}

impl Container {
    pub fn name(self) -> &'static str {
        match self {
            Container::Jsonl => "jsonl",
            Container::Json(_) => "json",
            Container::Text => "text",
            Container::Csv(b'\t') => "tsv",
            Container::Csv(_) => "csv",
            Container::Parquet => "parquet",
            Container::Arrow => "arrow",
        }
    }

    /// What a place in it is counted by.
    pub fn counts(self) -> &'static str {
        match self {
            Container::Parquet | Container::Arrow | Container::Json(Shape::Columns) => "row",
            _ => "line",
        }
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub container: Container,
    /// What its text is decoded from; None for UTF-8 and what is no text.
    pub encoding: Option<&'static Encoding>,
    /// Bytes.
    pub length: u64,
}

/// What a file is; `named`: the encoding that the user confirmed. Errors: `FileEmpty`, `FormatUnknown`, `NotSupported`,
/// `CodeInFile`, `EncodingUnconfirmed`.
pub(super) fn kind(path: &Path, named: Option<&'static Encoding>) -> Outcome<Kind> {
    let mut file = folder::open(path)?;
    let length = folder::length(&file, path)?;
    let start = first_bytes(&mut file, path)?;
    if start.bytes.is_empty() {
        let what = if length == 0 { "the file is empty (0 bytes)" } else { "the file is empty: only white space" };
        return Err(Problem::new(Code::FileEmpty, what).file(path).remedy("give a file with rows"));
    }
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    let (container, encoding) = of_start(start, &ending, named).map_err(|p| p.file(path))?;
    Ok(Kind { container, encoding, length })
}

type Named = (Container, Option<&'static Encoding>);

fn of_start(start: Start, ending: &str, named: Option<&'static Encoding>) -> Outcome<Named> {
    let Start { mut bytes, whole, marked } = start;
    if bytes.starts_with(parquet::MAGIC) {
        return Ok((Container::Parquet, None));
    }
    if bytes.starts_with(arrow::MAGIC) || is_arrow_stream(&bytes) {
        return Ok((Container::Arrow, None));
    }
    // Text that begins with a mark of UTF-8 is UTF-8, whatever else was confirmed for the files beside it.
    let encoding = named.filter(|_| !marked);
    match encoding {
        Some(encoding) => {
            if encoding::utf_16(&bytes).is_none() {
                foreign(&bytes)?;
            }
            bytes = encoding::decoded(&bytes, encoding);
        }
        None if encoding::utf_16(&bytes).is_some() => return Err(encoding::unconfirmed(&bytes, whole)),
        None => {}
    }
    foreign(&bytes)?;
    let container = of_text(bytes.trim_ascii_start(), whole, ending);
    if encoding.is_none() {
        let by = match container {
            Container::Jsonl | Container::Json(_) => By::Lines,
            _ => By::All,
        };
        encoding::confirm(&bytes, whole, by)?;
    }
    Ok((container, encoding))
}

/// The start of a file from its first byte that is neither mark nor white space.
struct Start {
    bytes: Vec<u8>,
    /// It is the whole file.
    whole: bool,
    /// It began with the mark of UTF-8.
    marked: bool,
}

fn first_bytes(file: &mut std::fs::File, path: &Path) -> Outcome<Start> {
    let mut start: Vec<u8> = Vec::new();
    let (mut first, mut marked) = (true, false);
    loop {
        let mut part = Vec::new();
        let wanted = (WINDOW - start.len()) as u64;
        file.take(wanted).read_to_end(&mut part).map_err(|e| Problem::io(&e, "reading the data", path))?;
        let whole = part.is_empty();
        if first && part.starts_with(BOM) {
            marked = true;
            part.drain(..BOM.len());
        }
        first = false;
        start.extend(part);
        let blank = start.iter().take_while(|b| b.is_ascii_whitespace()).count();
        start.drain(..blank);
        if whole || start.len() == WINDOW {
            return Ok(Start { bytes: start, whole, marked });
        }
    }
}

/// A stream of Arrow messages begins with one that says it continues, and how long its description is.
fn is_arrow_stream(start: &[u8]) -> bool {
    let size = start.get(4..8).map(|s| u32::from_le_bytes([s[0], s[1], s[2], s[3]]));
    start.starts_with(&arrow::CONTINUED) && size.is_some_and(|n| n > 0 && n % 8 == 0 && n < 1 << 28)
}

/// Files that are no text of ours, by their magic numbers.
fn foreign(start: &[u8]) -> Outcome<()> {
    let later = |what: &str| Err(Problem::new(Code::NotSupported, format!("{what} come with a later version")));
    let unknown = |what: &str| {
        let problem = Problem::new(Code::FormatUnknown, format!("this is {what}, not a data set"));
        Err(problem.remedy("give JSON, JSON lines, CSV, Parquet, Arrow or plain text"))
    };
    let is = |magic: &[u8]| start.starts_with(magic);
    let lower: Vec<u8> = start.iter().take(64).map(u8::to_ascii_lowercase).collect();
    match () {
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
        _ if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") => unknown("a web page"),
        _ if lower.starts_with(b"<?xml") => unknown("an XML document"),
        _ if start.contains(&0) => unknown("a binary file"),
        _ => Ok(()),
    }
}

fn of_text(start: &[u8], whole: bool, ending: &str) -> Container {
    let first = start.split(|b| *b == b'\n').next().unwrap_or_default();
    let is_json = |line: &[u8]| serde_json::from_slice::<IgnoredAny>(line).is_ok();
    let named_json = matches!(ending, "json" | "jsonl" | "ndjson");
    let table = || match csv::separator(start, ending, whole) {
        Some(separator) => Container::Csv(separator),
        None => Container::Text,
    };
    match start.first() {
        Some(b'{') => object::container(start, whole, ending),
        Some(b'[') => {
            let next = start[1..].iter().find(|b| !b.is_ascii_whitespace());
            match next {
                Some(b'{' | b']') => Container::Json(Shape::Array),
                _ if is_json(first) => Container::Jsonl,
                _ if named_json => Container::Json(Shape::Array),
                _ => table(),
            }
        }
        _ if named_json => Container::Jsonl,
        _ => table(),
    }
}
