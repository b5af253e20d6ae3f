//! Data sets: JSON lines and other JSON, separated values, Parquet, Arrow and plain text, decided by content; rows of
//! alpaca's layout, of OpenAI's messages, or of plain text. Files are streamed: one record of at most 16 MiB, or one batch
//! of a table, is in memory at a time.
//!
//! Not here: what is learnt from a record (`sample`), which records are evaluated on (`anneal-trainer read`).

mod array;
mod arrow;
mod cells;
mod columns;
mod csv;
mod encoding;
mod files;
mod layout;
mod lines;
mod object;
mod parquet;
mod sniff;
mod stream;
mod text;
mod thrift;

pub use files::{DataFile, files};

use crate::template::Turn;
use layout::Layout;
use minijinja::Value;
use protocol::facts::{DatasetFacts, RowProblem};
use protocol::{Code, Outcome, Problem, limits};
use sniff::{Container, Kind};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use stream::{Body, Raw, Source};

/// Rows looked at to find the layout; a data set whose first thousand rows are all unknown is unknown.
const PROBED: usize = 1000;
/// Columns listed; a table of more is no list of records.
const COLUMNS: usize = 1000;

/// How to read a data set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Role (prompt, answer, system, text, messages) to column; empty = by the rows themselves.
    pub columns: BTreeMap<String, String>,
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
    files: Vec<DataFile>,
    kinds: Vec<Kind>,
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
/// content, `EncodingUnconfirmed` with the way to confirm it, `LayoutUnknown` naming the columns, `SettingInvalid` for
/// unknown roles and encodings.
pub fn read(paths: &[PathBuf], options: &Options) -> Outcome<Records> {
    let mut all = Vec::new();
    let mut skipped = VecDeque::new();
    for path in paths {
        let listing = files::list(path)?;
        all.extend(listing.files);
        skipped.extend(listing.skipped);
    }
    let mapped = Layout::mapped(&options.columns)?;
    let encoding = encoding::named(options.encoding.as_deref())?;
    let kinds = all.iter().map(|file| sniff::kind(&file.path, encoding)).collect::<Outcome<Vec<Kind>>>()?;
    if all.is_empty() {
        return Err(Problem::new(Code::FileEmpty, "there is no data file"));
    }
    let only_text = kinds.iter().all(|kind| kind.container == Container::Text);
    let mut records = Records {
        paths: all.iter().map(|file| file.path.clone()).collect(),
        files: all,
        bytes_total: kinds.iter().map(|kind| kind.length).sum(),
        kinds,
        layout: None,
        skipped,
        source: None,
        file: 0,
        row: 0,
        bytes_before: 0,
        columns: Vec::new(),
        failed: false,
    };
    records.layout = Some(match mapped {
        _ if only_text => Layout::plain(),
        Some(layout) => layout,
        None => records.probe()?,
    });
    Ok(records)
}

/// Facts of a data set: every row is looked at. Errors: those of `read`, a failed read.
pub fn inspect(path: &Path, options: &Options) -> Outcome<DatasetFacts> {
    let mut records = read(&[path.to_owned()], options)?;
    let mut facts = DatasetFacts {
        container: records.containers(),
        format: records.layout.as_ref().map(|l| l.name().to_owned()).unwrap_or_default(),
        rows: 0,
        usable_rows: 0,
        splits: files::splits(records.files.iter()),
        columns: Vec::new(),
        problems: Vec::new(),
        problem_counts: BTreeMap::new(),
        bytes: records.bytes_total,
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
        // What is decoded on the way may be longer than what is on disk.
        let length = self.kinds.get(self.file).map_or(0, |kind| kind.length);
        (self.bytes_before + self.source.as_ref().map_or(0, Source::position).min(length), self.bytes_total)
    }

    /// The files with the split each belongs to, in their order.
    pub fn files(&self) -> &[DataFile] {
        &self.files
    }

    /// Names of the containers of the files, each once.
    fn containers(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for kind in &self.kinds {
            if !names.contains(&kind.container.name()) {
                names.push(kind.container.name());
            }
        }
        names.join(", ")
    }

    /// The files that are read, in their order; `Record::file` counts them.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    fn advance(&mut self) -> Outcome<Option<Row>> {
        let Some(raw) = self.next_raw()? else { return Ok(None) };
        self.row += 1;
        let line = raw.line;
        let content = match raw.body.and_then(|body| self.content(body, line)) {
            Ok(content) => content,
            Err((code, what)) => {
                let counts = self.kinds[self.file].container.counts();
                let message = format!("{}, {counts} {line}: {what}", shown(&self.paths[self.file]));
                let line = if counts == "line" { line } else { 0 };
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
                self.source = Some(Source::open(path, &self.kinds[self.file])?);
            }
            let Some(source) = &mut self.source else { return Ok(None) };
            if let Some(raw) = source.next()? {
                return Ok(Some(raw));
            }
            self.bytes_before += self.kinds[self.file].length;
            self.source = None;
            self.file += 1;
        }
    }

    fn content(&mut self, body: Body, line: u64) -> Result<Content, (Code, String)> {
        let row = match row(body, line, &self.kinds[self.file])? {
            Ok(row) => row,
            Err(text) => return layout::plain_text(text),
        };
        layout::add_columns(&row, &mut self.columns, COLUMNS)?;
        match &self.layout {
            Some(layout) => layout.content(&row),
            None => Err((Code::LayoutUnknown, "the layout is not known".into())),
        }
    }

    /// The layout of the first row that has a known one; nothing is consumed.
    fn probe(&mut self) -> Outcome<Layout> {
        let (mut columns, mut foreign, mut first) = (Vec::new(), None, None);
        let mut rows = 0;
        for (path, kind) in self.paths.iter().zip(&self.kinds).filter(|(_, kind)| kind.container != Container::Text) {
            let mut source = Source::open(path, kind)?;
            while rows < PROBED {
                let Some(raw) = source.next()? else { break };
                rows += 1;
                match raw.body.and_then(|body| row(body, raw.line, kind)) {
                    Ok(Ok(row)) => match Layout::of(&row) {
                        Ok(layout) => return Ok(layout),
                        Err(name) => {
                            foreign = foreign.or(name);
                            let _ = layout::add_columns(&row, &mut columns, COLUMNS);
                        }
                    },
                    Ok(Err(_)) => {}
                    Err((_, what)) => {
                        first.get_or_insert(format!("{} {}: {what}", kind.container.counts(), raw.line));
                    }
                }
            }
        }
        let path = &self.paths[0];
        if rows == 0 {
            return Err(Problem::new(Code::FileEmpty, "the file is empty: it has no rows").file(path));
        }
        Err(layout::unknown(&columns, foreign, first).file(path))
    }
}

/// A record as a row of named columns, or the plain text that it is.
fn row(body: Body, line: u64, kind: &Kind) -> Result<Result<Value, String>, (Code, String)> {
    match body {
        Body::Row(row) => Ok(Ok(row)),
        Body::Json(bytes) => layout::parse(&encoding::text(bytes, line, kind.encoding)?).map(Ok),
        Body::Text(bytes) => encoding::text(bytes, line, kind.encoding).map(Err),
    }
}

#[cfg(test)]
mod tests;
