//! Data sets: JSON lines and other JSON, separated values, Parquet, Arrow and plain text, decided by content; rows are
//! conversations, prompts and answers, preference pairs, labelled answers or plain text, under any of the usual names. Files
//! are streamed: one record of at most 16 MiB, or one batch of a table, is in memory at a time.
//!
//! Not here: what is learnt from a record (`sample`), which records are evaluated on (`anneal-trainer read`).

mod array;
mod arrow;
mod cells;
mod columns;
mod csv;
mod encoding;
mod excerpt;
mod facts;
mod files;
mod layout;
mod lines;
mod meaning;
mod object;
mod parquet;
mod place;
mod rules;
mod said;
mod sniff;
mod stream;
mod sweep;
mod text;
mod thrift;

pub use facts::{inspect, inspect_within};
pub use files::{DataFile, files};
pub use meaning::{Meaning, RawRow};
pub use place::Mark;
pub use rules::{Rules, Tally};

use crate::template::Turn;
use protocol::facts::RowProblem;
use protocol::job::RowAction;
use protocol::{Code, Outcome, Problem};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stream::{Raw, Source};

/// Rows looked at to find the layout; a data set whose first thousand rows are all unknown is unknown.
const PROBED: usize = 1000;
/// Columns listed; a table of more is no list of records.
const COLUMNS: usize = 1000;

/// How to read a data set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Meaning (prompt, answer, system, text, messages, …) to column; what is left out is found by the rows themselves.
    pub columns: BTreeMap<String, String>,
    /// Decisions by class of rows, as `data.rows` of a job.
    pub rows: BTreeMap<String, RowAction>,
    /// Names of roles to known ones, as `data.roles` of a job.
    pub roles: BTreeMap<String, String>,
    /// Encoding of text files that are not UTF-8, as confirmed; None or "utf-8" = as they are.
    pub encoding: Option<String>,
}

/// A usable record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Index of its file among the files read, from 0.
    pub file: usize,
    /// Record over all files, from 1.
    pub row: u64,
    /// Line where it starts, from 1; in tables without lines the row within the file.
    pub line: u64,
    /// A text begins here; false for the later blocks of a text file.
    pub begins: bool,
    /// A text ends here; false for all but the last block of a text file.
    pub ends: bool,
    /// What it says.
    pub content: Content,
    /// What was wrong with it and was converted, as the job says.
    pub converted: Vec<RowProblem>,
}

/// A conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// Objects with at least `role` (system, user, assistant or tool) and `content`; other keys as in the file.
    pub turns: Vec<Turn>,
    /// A list of the tools that the row defines.
    pub tools: Option<Turn>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A conversation with at least one answer.
    Messages(Conversation),
    /// Plain text.
    Text(String),
    /// A better and a worse answer.
    Preference {
        /// What both answer; empty where they hold it themselves.
        asked: Vec<Turn>,
        /// The better one.
        chosen: Vec<Turn>,
        /// The worse one.
        rejected: Vec<Turn>,
    },
    /// A conversation whose answer is good or bad.
    Labelled {
        /// The conversation.
        turns: Vec<Turn>,
        /// What its label says.
        good: bool,
    },
}

/// A record, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// Usable.
    Record(Record),
    /// Not usable; reading goes on after it. Row 0 speaks of a whole entry of a folder.
    Problem(RowProblem),
}

/// Streams records in the order of the files.
pub struct Records {
    meaning: Arc<Meaning>,
    skipped: VecDeque<RowProblem>,
    source: Option<Source>,
    file: usize,
    row: u64,
    /// Rows of the file that is being read.
    rows_of_file: u64,
    bytes_before: u64,
    columns: Vec<String>,
    failed: bool,
}

/// Streams the records of files and folders. Of a folder that has a split to train on, its other splits are no part.
/// Errors: `FileEmpty`, `FormatUnknown`, `NotSupported` and `CodeInFile` by content, `EncodingUnconfirmed` with the way to
/// confirm it, `LayoutUnknown` naming the columns, `SettingInvalid` for what the options cannot mean.
pub fn read(paths: &[PathBuf], options: &Options) -> Outcome<Records> {
    let mut all = Vec::new();
    let mut skipped = VecDeque::new();
    for path in paths {
        let listing = files::list(path)?;
        all.extend(files::trained(&listing.files));
        skipped.extend(listing.skipped);
    }
    if all.is_empty() {
        return Err(Problem::new(Code::FileEmpty, "there is no data file"));
    }
    let meaning = Arc::new(Meaning::of(all, options)?);
    Ok(Records::new(meaning, skipped))
}

/// A file's name for messages, escaped.
fn shown(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().escape_debug().to_string()
}

impl Iterator for Records {
    /// An error ends the stream: a file could not be read on.
    type Item = Outcome<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if let Some(problem) = self.skipped.pop_front() {
            return Some(Ok(Row::Problem(problem)));
        }
        let next = self.advance().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

impl Records {
    fn new(meaning: Arc<Meaning>, skipped: VecDeque<RowProblem>) -> Records {
        let (source, columns) = (None, Vec::new());
        Records { meaning, skipped, source, file: 0, row: 0, rows_of_file: 0, bytes_before: 0, columns, failed: false }
    }

    /// Bytes read so far and in all, for progress.
    pub fn progress(&self) -> (u64, u64) {
        // What is decoded on the way may be longer than what is on disk.
        let length = self.meaning.kinds.get(self.file).map_or(0, |kind| kind.length);
        (self.bytes_before + self.source.as_ref().map_or(0, Source::position).min(length), self.meaning.bytes())
    }

    /// The files that are read, in their order; `Record::file` counts them.
    pub fn files(&self) -> &[DataFile] {
        &self.meaning.files
    }

    /// How the rows are understood, to be shared by whoever looks at `raw` ones.
    pub fn meaning(&self) -> &Arc<Meaning> {
        &self.meaning
    }

    /// The next row before it is looked at; none at the end, where entries that were left out may be told by `next`.
    pub fn raw(&mut self) -> Outcome<Option<RawRow>> {
        let Some(raw) = self.next_raw()? else { return Ok(None) };
        self.row += 1;
        Ok(Some(RawRow { raw, file: self.file, row: self.row }))
    }

    /// What is to be said of entries of a folder that are no rows, once.
    pub fn entries(&mut self) -> Vec<RowProblem> {
        std::mem::take(&mut self.skipped).into()
    }

    fn advance(&mut self) -> Outcome<Option<Row>> {
        let Some(raw) = self.raw()? else { return Ok(None) };
        Ok(Some(self.meaning.row_with(raw, &mut self.columns)))
    }

    fn next_raw(&mut self) -> Outcome<Option<Raw>> {
        loop {
            if self.source.is_none() {
                let Some(file) = self.meaning.files.get(self.file) else { return Ok(None) };
                self.source = Some(Source::open(&file.path, &self.meaning.kinds[self.file])?);
                self.rows_of_file = 0;
            }
            let Some(source) = &mut self.source else { return Ok(None) };
            if let Some(raw) = source.next()? {
                self.rows_of_file += 1;
                return Ok(Some(raw));
            }
            self.bytes_before += self.meaning.kinds[self.file].length;
            self.source = None;
            self.file += 1;
        }
    }
}

#[cfg(test)]
mod tests;
