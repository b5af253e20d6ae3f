//! Data sets: JSON lines, JSON arrays and plain text, decided by content; rows of alpaca's layout, of OpenAI's messages, or
//! of plain text. Files are streamed: one record of at most 16 MiB is in memory at a time.
//!
//! Not here: what is learnt from a record (`sample`), which records are evaluated on (`anneal-trainer read`).

mod array;
mod files;
mod layout;
mod lines;
mod sniff;
mod stream;
mod text;

pub use files::files;

use crate::template::Turn;
use layout::Layout;
use protocol::facts::{DatasetFacts, RowProblem};
use protocol::{Code, Outcome, Problem, limits};
use sniff::Container;
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
    /// Role (prompt, answer, system, text, messages) to column; empty = by the rows themselves.
    pub columns: BTreeMap<String, String>,
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
    failed: bool,
}

/// Streams the records of files and folders. Errors: `FileEmpty`, `FormatUnknown`, `NotSupported` and `CodeInFile` by
/// content, `LayoutUnknown` naming the columns, `SettingInvalid` for unknown roles.
pub fn read(paths: &[PathBuf], options: &Options) -> Outcome<Records> {
    let mut all = Vec::new();
    let mut skipped = VecDeque::new();
    for path in paths {
        let listing = files::list(path)?;
        all.extend(listing.files);
        skipped.extend(listing.skipped);
    }
    let mapped = Layout::mapped(&options.columns)?;
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
        failed: false,
    };
    records.layout = Some(match (container, mapped) {
        (Container::Text, _) => Layout::plain(),
        (_, Some(layout)) => layout,
        _ => records.probe()?,
    });
    Ok(records)
}

/// Facts of a data set: every row is looked at. Errors: those of `read`, a failed read.
pub fn inspect(path: &Path, options: &Options) -> Outcome<DatasetFacts> {
    let mut records = read(&[path.to_owned()], options)?;
    let mut facts = DatasetFacts {
        container: records.container.name().into(),
        format: records.layout.as_ref().map(|l| l.name().to_owned()).unwrap_or_default(),
        rows: 0,
        usable_rows: 0,
        splits: files::splits(&records.paths),
        columns: Vec::new(),
        problems: Vec::new(),
        problem_counts: BTreeMap::new(),
        bytes: records.bytes_total,
        complete: true,
    };
    for row in records.by_ref() {
        match row? {
            Row::Record(_) => facts.usable_rows += 1,
            Row::Problem(problem) => {
                *facts.problem_counts.entry(problem.code.name()).or_default() += 1;
                if facts.problems.len() < limits::LISTED_ROW_PROBLEMS {
                    facts.problems.push(problem);
                }
            }
        }
    }
    facts.rows = records.row;
    facts.columns = records.columns;
    Ok(facts)
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
        let line = raw.line;
        let content = match raw.bytes.and_then(|bytes| self.content(bytes)) {
            Ok(content) => content,
            Err((code, what)) => {
                let message = format!("{}, line {line}: {what}", shown(&self.paths[self.file]));
                return Ok(Some(Row::Problem(RowProblem { row: self.row, line, code, message })));
            }
        };
        let (begins, ends) = (raw.begins, raw.ends);
        Ok(Some(Row::Record(Record { file: self.file, row: self.row, line, begins, ends, content })))
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

    fn content(&mut self, bytes: Vec<u8>) -> Result<Content, (Code, String)> {
        let text = String::from_utf8(bytes).map_err(|e| {
            (
                Code::RowNotUtf8,
                format!("not UTF-8: byte {} of the row begins no character", e.utf8_error().valid_up_to()),
            )
        })?;
        if self.container == Container::Text {
            return layout::plain_text(text);
        }
        let row = layout::parse(&text)?;
        layout::add_columns(&row, &mut self.columns, COLUMNS)?;
        match &self.layout {
            Some(layout) => layout.content(&row),
            None => Err((Code::LayoutUnknown, "the layout is not known".into())),
        }
    }

    /// The layout of the first row that has a known one; nothing is consumed.
    fn probe(&mut self) -> Outcome<Layout> {
        let path = self.paths[0].clone();
        let mut source = Source::open(&path, self.container)?;
        let (mut columns, mut foreign, mut first) = (Vec::new(), None, None);
        let mut rows = 0;
        while let Some(raw) = source.next()?.filter(|_| rows < PROBED) {
            rows += 1;
            let parsed = raw.bytes.and_then(|bytes| {
                let text = String::from_utf8(bytes).map_err(|_| (Code::RowNotUtf8, "not UTF-8".to_owned()))?;
                layout::parse(&text)
            });
            match parsed {
                Ok(row) => match Layout::of(&row) {
                    Ok(layout) => return Ok(layout),
                    Err(name) => {
                        foreign = foreign.or(name);
                        let _ = layout::add_columns(&row, &mut columns, COLUMNS);
                    }
                },
                Err((_, what)) => {
                    first.get_or_insert(format!("line {}: {what}", raw.line));
                }
            }
        }
        if rows == 0 {
            return Err(Problem::new(Code::FileEmpty, "the file is empty: it has no rows").file(&path));
        }
        Err(layout::unknown(&columns, foreign, first).file(&path))
    }
}

#[cfg(test)]
mod tests;
