//! One file as a stream of raw records, whatever its container.

use super::array::Array;
use super::arrow::Arrow;
use super::columns::Columns;
use super::csv::Csv;
use super::encoding::Decoded;
use super::lines::Lines;
use super::object::Held;
use super::parquet::Parquet;
use super::sniff::{Container, Kind};
use super::text::Blocks;
use crate::folder;
use encoding_rs::Encoding;
use minijinja::Value;
use protocol::{Code, Outcome, Problem};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes read from disk at once.
const BUFFER: usize = 1 << 18;

/// Why a row gives no record.
pub(super) type Bad = (Code, String);

/// What a record is before its layout is known.
pub(super) enum Body {
    /// An object, still to be parsed.
    Json(Vec<u8>),
    /// Columns by name, in the order of the table.
    Row(Value),
    /// A part of a plain text.
    Text(Vec<u8>),
}

/// A record, or why it is none.
pub(super) struct Raw {
    /// Line where it starts, from 1; in tables without lines the row within the file.
    pub line: u64,
    pub begins: bool,
    pub ends: bool,
    pub body: Result<Body, Bad>,
}

impl Raw {
    /// A record of JSON.
    pub fn whole(line: u64, bytes: Result<Vec<u8>, Bad>) -> Raw {
        Raw::row(line, bytes.map(Body::Json))
    }

    /// A record of any kind that is not a part of a text.
    pub fn row(line: u64, body: Result<Body, Bad>) -> Raw {
        Raw { line, begins: true, ends: true, body }
    }
}

/// A file that is being read.
pub(super) enum Source {
    Lines(Lines),
    Array(Array),
    Text(Blocks),
    Csv(Csv),
    Held(Held),
    Columns(Columns),
}

impl Source {
    pub fn open(path: &Path, kind: &Kind) -> Outcome<Source> {
        let bytes = || Bytes::open(path, kind.encoding);
        Ok(match kind.container {
            Container::Jsonl => Source::Lines(Lines::new(bytes()?)),
            Container::Json(shape) => match shape {
                super::object::Shape::Columns => Source::Held(Held::open(bytes()?, kind.length)?),
                shape => Source::Array(Array::new(bytes()?, shape)),
            },
            Container::Text => Source::Text(Blocks::new(bytes()?)),
            Container::Csv(separator) => Source::Csv(Csv::open(bytes()?, separator)?),
            Container::Parquet => Source::Columns(Columns::new(Box::new(Parquet::open(path)?), path, kind.length)),
            Container::Arrow => Source::Columns(Columns::new(Box::new(Arrow::open(path)?), path, kind.length)),
        })
    }

    pub fn next(&mut self) -> Outcome<Option<Raw>> {
        match self {
            Source::Lines(lines) => lines.next(),
            Source::Array(array) => array.next(),
            Source::Text(blocks) => blocks.next(),
            Source::Csv(table) => table.next(),
            Source::Held(held) => held.next(),
            Source::Columns(columns) => columns.next(),
        }
    }

    /// Where the next row begins; none for containers without such places.
    pub fn at(&self) -> Option<At> {
        match self {
            Source::Lines(lines) if lines.bytes.encoding.is_none() => {
                Some(At { position: lines.bytes.position, line: lines.bytes.line })
            }
            _ => None,
        }
    }

    /// Goes to such a place; false where it cannot.
    pub fn go_to(&mut self, at: &At) -> bool {
        match self {
            Source::Lines(lines) => lines.bytes.go_to(at),
            _ => false,
        }
    }

    pub fn position(&self) -> u64 {
        match self {
            Source::Lines(lines) => lines.bytes.position,
            Source::Array(array) => array.bytes.position,
            Source::Text(blocks) => blocks.bytes.position,
            Source::Csv(table) => table.bytes.position,
            Source::Held(held) => held.position(),
            Source::Columns(columns) => columns.position(),
        }
    }
}

/// A place in a file that may be gone to.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    position: u64,
    line: u64,
}

/// Bytes as they are, or decoded to UTF-8.
enum Input {
    Plain(File),
    Decoded(Box<Decoded>),
    /// Taken out, to be put into a new buffer.
    Gone,
}

impl Read for Input {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Input::Plain(file) => file.read(to),
            Input::Decoded(decoded) => decoded.read(to),
            Input::Gone => Ok(0),
        }
    }
}

/// Buffered bytes of a file; a byte-order mark at its start is passed over.
pub(super) struct Bytes {
    reader: BufReader<Input>,
    path: PathBuf,
    encoding: Option<&'static Encoding>,
    pub position: u64,
    /// Line of the next byte, from 1.
    pub line: u64,
}

impl Bytes {
    fn open(path: &Path, encoding: Option<&'static Encoding>) -> Outcome<Bytes> {
        let file = folder::open(path)?;
        let input = match encoding {
            None => Input::Plain(file),
            Some(encoding) => Input::Decoded(Box::new(Decoded::new(file, encoding))),
        };
        let reader = BufReader::with_capacity(BUFFER, input);
        let mut bytes = Bytes { reader, path: path.to_owned(), encoding, position: 0, line: 1 };
        if bytes.peek()?.starts_with(super::sniff::BOM) {
            bytes.consume(super::sniff::BOM.len());
        }
        Ok(bytes)
    }

    fn go_to(&mut self, at: &At) -> bool {
        let Input::Plain(file) = self.reader.get_mut() else { return false };
        if file.seek(SeekFrom::Start(at.position)).is_err() {
            return false;
        }
        let Input::Plain(file) = std::mem::replace(self.reader.get_mut(), Input::Gone) else { return false };
        self.reader = BufReader::with_capacity(BUFFER, Input::Plain(file));
        (self.position, self.line) = (at.position, at.line);
        true
    }

    /// The file they are of.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What they were decoded from; None for UTF-8.
    pub fn encoding(&self) -> Option<&'static Encoding> {
        self.encoding
    }

    /// What is buffered; empty at the end of the file.
    pub fn peek(&mut self) -> Outcome<&[u8]> {
        self.reader.fill_buf().map_err(|e| Problem::io(&e, "reading the data", &self.path))
    }

    pub fn consume(&mut self, n: usize) {
        self.line += self.reader.buffer().iter().take(n).filter(|b| **b == b'\n').count() as u64;
        self.position += n as u64;
        self.reader.consume(n);
    }

    pub fn byte(&mut self) -> Outcome<Option<u8>> {
        Ok(self.peek()?.first().copied())
    }
}
