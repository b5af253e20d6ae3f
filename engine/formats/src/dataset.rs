//! Data sets: JSON lines, JSON arrays and plain text, decided by content; rows are conversations, prompts and answers,
//! preference pairs, labelled answers or plain text, under any of the usual names. Files are streamed: one record of at most
//! 16 MiB is in memory at a time.
//!
//! Not here: what is learnt from a record (`sample`), which records are evaluated on (`anneal-trainer read`).

mod array;
mod excerpt;
mod facts;
mod files;
mod layout;
mod lines;
mod rules;
mod said;
mod sniff;
mod stream;
mod text;

pub use facts::inspect;
pub use files::files;
pub use rules::{Rules, Tally};

use crate::template::Turn;
use layout::{Bad, Layout, Probe, Reading};
use protocol::facts::RowProblem;
use protocol::job::RowAction;
use protocol::{Code, Outcome, Problem};
use sniff::Container;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
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
}

/// A usable record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Index of its file among the files read, from 0.
    pub file: usize,
    /// Record over all files, from 1.
    pub row: u64,
    /// Line where it starts, from 1.
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
    paths: Vec<PathBuf>,
    container: Container,
    layout: Option<Layout>,
    skipped: VecDeque<RowProblem>,
    source: Option<Source>,
    file: usize,
    row: u64,
    bytes_before: u64,
    bytes_total: u64,
    columns: Vec<String>,
    rules: Rules,
    failed: bool,
}

/// Streams the records of files and folders. Errors: `FileEmpty`, `FormatUnknown`, `NotSupported` and `CodeInFile` by
/// content, `LayoutUnknown` naming the columns, `SettingInvalid` for what the options cannot mean.
pub fn read(paths: &[PathBuf], options: &Options) -> Outcome<Records> {
    let mut all = Vec::new();
    let mut skipped = VecDeque::new();
    for path in paths {
        let listing = files::list(path)?;
        all.extend(listing.files);
        skipped.extend(listing.skipped);
    }
    let (rules, mapped) = (Rules::of(options)?, layout::by_columns(&options.columns)?);
    let (container, bytes_total) = one_container(&all)?;
    let mut records = Records {
        paths: all,
        container,
        layout: None,
        skipped,
        source: None,
        file: 0,
        row: 0,
        bytes_before: 0,
        bytes_total,
        columns: Vec::new(),
        rules,
        failed: false,
    };
    records.layout = Some(match (container, mapped) {
        (Container::Text, _) => Layout::plain(),
        (_, Some(layout)) => layout,
        _ => records.probe()?.changed(&options.columns)?,
    });
    Ok(records)
}

fn one_container(paths: &[PathBuf]) -> Outcome<(Container, u64)> {
    let mut found: Option<(Container, &Path)> = None;
    let mut bytes = 0;
    for path in paths {
        let (container, length) = sniff::container(path)?;
        bytes += length;
        match found {
            Some((first, other)) if first != container => {
                let what = format!("{} is {}, {} is {}", shown(other), first.name(), shown(path), container.name());
                return Err(Problem::new(Code::LayoutUnknown, what)
                    .why("the files of one data set must be of one kind")
                    .file(path)
                    .remedy("give files of one kind, or make several jobs"));
            }
            _ => found = Some((container, path)),
        }
    }
    match found {
        Some((container, _)) => Ok((container, bytes)),
        None => Err(Problem::new(Code::FileEmpty, "there is no data file")),
    }
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
    /// Bytes read so far and in all, for progress.
    pub fn progress(&self) -> (u64, u64) {
        (self.bytes_before + self.source.as_ref().map_or(0, Source::position), self.bytes_total)
    }

    /// The files that are read, in their order; `Record::file` counts them.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    fn advance(&mut self) -> Outcome<Option<Row>> {
        let Some(raw) = self.next_raw()? else { return Ok(None) };
        self.row += 1;
        let (line, begins, ends) = (raw.line, raw.begins, raw.ends);
        let (read, bytes) = match raw.bytes {
            Ok(bytes) => (self.content(&bytes), bytes),
            Err(bad) => (Err(bad), Vec::new()),
        };
        Ok(Some(match read {
            Err(bad) => Row::Problem(self.problem(line, bad, &bytes)),
            Ok((content, converted)) => {
                let converted = converted.into_iter().map(|bad| self.problem(line, bad, &bytes)).collect();
                Row::Record(Record { file: self.file, row: self.row, line, begins, ends, content, converted })
            }
        }))
    }

    /// What is wrong with the row that is being read.
    fn problem(&self, line: u64, (code, what): Bad, bytes: &[u8]) -> RowProblem {
        let path = &self.paths[self.file];
        let message = format!("{}, line {line}: {what}", shown(path));
        let (file, text) = (path.display().to_string(), excerpt::excerpt(bytes));
        RowProblem { row: self.row, line, code, message, file, text }
    }

    fn next_raw(&mut self) -> Outcome<Option<Raw>> {
        loop {
            if self.source.is_none() {
                let Some(path) = self.paths.get(self.file) else { return Ok(None) };
                self.source = Some(Source::open(path, self.container)?);
            }
            let Some(source) = &mut self.source else { return Ok(None) };
            if let Some(raw) = source.next()? {
                return Ok(Some(raw));
            }
            self.bytes_before += source.position();
            self.source = None;
            self.file += 1;
        }
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(Content, Vec<Bad>), Bad> {
        let mut reading = Reading::new(&self.rules);
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(e) => {
                let what = format!("not UTF-8: byte {} of the row begins no character", e.valid_up_to());
                reading.convert((Code::RowNotUtf8, what))?;
                Cow::Owned(excerpt::windows_1252(bytes))
            }
        };
        if self.container == Container::Text {
            return Ok((layout::plain_text(text.into_owned())?, reading.converted));
        }
        let row = layout::parse(&text)?;
        layout::add_columns(&row, &mut self.columns, COLUMNS)?;
        let Some(layout) = &self.layout else { return Err((Code::LayoutUnknown, "the layout is not known".into())) };
        Ok((layout.content(&row, &mut reading)?, reading.converted))
    }

    /// The layout of the first row that has a known one; nothing is consumed.
    fn probe(&mut self) -> Outcome<Layout> {
        let path = self.paths[0].clone();
        let mut source = Source::open(&path, self.container)?;
        let (mut probe, mut rows) = (Probe::default(), 0);
        while let Some(raw) = source.next()?.filter(|_| rows < PROBED) {
            rows += 1;
            let parsed = raw.bytes.and_then(|bytes| match String::from_utf8(bytes) {
                Ok(text) => layout::parse(&text),
                // Columns have names of ASCII as a rule; what the rest says is no matter here.
                Err(e) => layout::parse(&excerpt::windows_1252(e.as_bytes())),
            });
            match parsed {
                Ok(row) => {
                    if let Some(layout) = probe.row(&row, COLUMNS) {
                        return Ok(layout);
                    }
                }
                Err((_, what)) => probe.unread(raw.line, &what),
            }
        }
        if rows == 0 {
            return Err(Problem::new(Code::FileEmpty, "the file is empty: it has no rows").file(&path));
        }
        probe.end().map_err(|problem| problem.file(&path))
    }
}

#[cfg(test)]
mod tests;
