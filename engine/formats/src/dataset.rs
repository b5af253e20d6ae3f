//! Data sets: JSONL, JSON arrays and plain text, decided by content; alpaca, OpenAI messages and text rows.

use crate::template::Turn;
use protocol::Outcome;
use protocol::facts::{DatasetFacts, RowProblem};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How to read a data set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Role (prompt, answer, text, messages) to column; empty = by the rows themselves.
    pub columns: BTreeMap<String, String>,
}

/// A usable record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Index into the paths read, from 0.
    pub file: usize,
    /// Record over all files, from 1.
    pub row: u64,
    /// Line where it starts, from 1; 0 where the container has no lines.
    pub line: u64,
    /// What it says.
    pub content: Content,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A conversation: objects with at least `role` and `content`, other keys (tool calls) as in the file.
    Messages(Vec<Turn>),
    /// Plain text.
    Text(String),
}

/// A record, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// Usable.
    Record(Record),
    /// Not usable; reading goes on after it.
    Problem(RowProblem),
}

/// Streams records in the order of the files.
pub struct Records;

impl Iterator for Records {
    /// An error ends the stream: the file could not be read on.
    type Item = Outcome<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}

impl Records {
    /// Bytes read so far and in all, for progress.
    pub fn progress(&self) -> (u64, u64) {
        todo!()
    }
}

/// Facts of a data set: every row is looked at.
pub fn inspect(path: &Path, options: &Options) -> Outcome<DatasetFacts> {
    todo!("{path:?} {options:?}")
}

/// Streams the records of files and folders.
pub fn read(paths: &[PathBuf], options: &Options) -> Outcome<Records> {
    todo!("{paths:?} {options:?}")
}

/// The files a path stands for: itself, or the data files of a folder in the order of their names.
pub fn files(path: &Path) -> Outcome<Vec<PathBuf>> {
    todo!("{path:?}")
}
