//! One file as a stream of raw records, whatever its container.

use super::array::Array;
use super::lines::Lines;
use super::sniff::Container;
use super::text::Blocks;
use crate::folder;
use protocol::{Code, Outcome, Problem};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Bytes read from disk at once.
const BUFFER: usize = 1 << 18;

/// The bytes of a record, or why they are none.
pub(super) struct Raw {
    pub line: u64,
    pub begins: bool,
    pub ends: bool,
    pub bytes: Result<Vec<u8>, (Code, String)>,
}

impl Raw {
    pub fn whole(line: u64, bytes: Result<Vec<u8>, (Code, String)>) -> Raw {
        Raw { line, begins: true, ends: true, bytes }
    }
}

/// A file that is being read.
pub(super) enum Source {
    Lines(Lines),
    Array(Array),
    Text(Blocks),
}

impl Source {
    pub fn open(path: &Path, container: Container) -> Outcome<Source> {
        let bytes = Bytes::open(path)?;
        Ok(match container {
            Container::Jsonl => Source::Lines(Lines::new(bytes)),
            Container::Json => Source::Array(Array::new(bytes)),
            Container::Text => Source::Text(Blocks::new(bytes)),
        })
    }

    pub fn next(&mut self) -> Outcome<Option<Raw>> {
        match self {
            Source::Lines(lines) => lines.next(),
            Source::Array(array) => array.next(),
            Source::Text(blocks) => blocks.next(),
        }
    }

    pub fn position(&self) -> u64 {
        match self {
            Source::Lines(lines) => lines.bytes.position,
            Source::Array(array) => array.bytes.position,
            Source::Text(blocks) => blocks.bytes.position,
        }
    }
}

/// Buffered bytes of a file; a byte-order mark at its start is passed over.
pub(super) struct Bytes {
    reader: BufReader<File>,
    path: PathBuf,
    pub position: u64,
    /// Line of the next byte, from 1.
    pub line: u64,
}

impl Bytes {
    fn open(path: &Path) -> Outcome<Bytes> {
        let reader = BufReader::with_capacity(BUFFER, folder::open(path)?);
        let mut bytes = Bytes { reader, path: path.to_owned(), position: 0, line: 1 };
        if bytes.peek()?.starts_with(super::sniff::BOM) {
            bytes.consume(super::sniff::BOM.len());
        }
        Ok(bytes)
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
