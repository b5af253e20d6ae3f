//! How the rows of a data set are understood: which files it has and what they are, the layout of its rows, and what the user
//! decided. One for all rows, so that many may look at rows at once.

use super::files::DataFile;
use super::layout::{Bad, Layout, Probe, Reading, add_columns, by_columns, parse, plain_text};
use super::rules::Rules;
use super::sniff::{self, Container, Kind};
use super::stream::{Body, Raw, Source};
use super::{COLUMNS, Content, Options, PROBED, Record, Row, encoding, excerpt, shown};
use encoding_rs::Encoding;
use minijinja::Value;
use protocol::facts::RowProblem;
use protocol::{Code, Outcome, Problem};
use std::borrow::Cow;

/// How rows are understood.
pub struct Meaning {
    pub(super) files: Vec<DataFile>,
    pub(super) kinds: Vec<Kind>,
    pub(super) layout: Layout,
    pub(super) rules: Rules,
}

/// A row that nobody has looked at yet.
pub struct RawRow {
    pub(super) raw: Raw,
    pub(super) file: usize,
    pub(super) row: u64,
}

impl RawRow {
    /// Row over all files, from 1.
    pub fn number(&self) -> u64 {
        self.row
    }

    /// Bytes it takes in memory, about.
    pub fn bytes(&self) -> usize {
        match &self.raw.body {
            Ok(Body::Json(bytes) | Body::Text(bytes)) => bytes.len(),
            Ok(Body::Row(row)) => bytes_of(row),
            Err(_) => 0,
        }
    }
}

impl Meaning {
    /// The meaning of files under these options; their first rows are looked at.
    pub(super) fn of(files: Vec<DataFile>, options: &Options) -> Outcome<Meaning> {
        let (rules, mapped) = (Rules::of(options)?, by_columns(&options.columns)?);
        let named = encoding::named(options.encoding.as_deref())?;
        let kinds = files.iter().map(|file| sniff::kind(&file.path, named)).collect::<Outcome<Vec<Kind>>>()?;
        let only_text = kinds.iter().all(|kind| kind.container == Container::Text);
        let layout = match mapped {
            _ if only_text => Layout::plain(),
            Some(layout) => layout,
            None => probe(&files, &kinds)?.changed(&options.columns)?,
        };
        Ok(Meaning { files, kinds, layout, rules })
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.length).sum()
    }

    /// Names of the containers of the files, each once.
    pub(super) fn containers(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for kind in &self.kinds {
            if !names.contains(&kind.container.name()) {
                names.push(kind.container.name());
            }
        }
        names.join(", ")
    }

    /// The record that a row is, or why it is none.
    pub fn row(&self, raw: RawRow) -> Row {
        self.row_with(raw, &mut Vec::new())
    }

    /// The same; columns that have not been met are added.
    pub(super) fn row_with(&self, RawRow { raw, file, row }: RawRow, columns: &mut Vec<String>) -> Row {
        let Raw { line, begins, ends, body } = raw;
        let problem = |bad, body: Option<&Body>| {
            let text = body.map(text_of_body).unwrap_or_default();
            self.problem(file, row, line, bad, text)
        };
        match body {
            Err(bad) => Row::Problem(problem(bad, None)),
            Ok(body) => match self.content(&body, line, file, columns) {
                Err(bad) => Row::Problem(problem(bad, Some(&body))),
                Ok((content, converted)) => {
                    let converted = converted.into_iter().map(|bad| problem(bad, Some(&body))).collect();
                    Row::Record(Record { file, row, line, begins, ends, content, converted })
                }
            },
        }
    }

    /// What is wrong with a row. `text` is its beginning, escaped.
    pub(super) fn problem(&self, file: usize, row: u64, line: u64, (code, what): Bad, text: String) -> RowProblem {
        let path = &self.files[file].path;
        let counts = self.kinds[file].container.counts();
        let message = format!("{}, {counts} {line}: {what}", shown(path));
        let line = if counts == "line" { line } else { 0 };
        RowProblem { row, line, code, message, file: path.display().to_string(), text }
    }

    fn content(
        &self,
        body: &Body,
        line: u64,
        file: usize,
        columns: &mut Vec<String>,
    ) -> Result<(Content, Vec<Bad>), Bad> {
        let mut reading = Reading::new(&self.rules);
        let row = match understood(body, line, self.kinds[file].encoding, &mut reading)? {
            Ok(row) => row,
            Err(text) => return Ok((plain_text(text)?, reading.converted)),
        };
        add_columns(&row, columns, COLUMNS)?;
        Ok((self.layout.content(&row, &mut reading)?, reading.converted))
    }
}

/// Bytes of the texts in a row of a table, and some for each column.
fn bytes_of(row: &Value) -> usize {
    let each = |key: Value| 64 + row.get_item(&key).ok().and_then(|v| v.as_str().map(str::len)).unwrap_or(256);
    row.try_iter().map(|keys| keys.map(each).sum()).unwrap_or(256)
}

/// A record as a row of named columns, or the plain text that it is.
pub(super) fn understood(
    body: &Body,
    line: u64,
    encoding: Option<&'static Encoding>,
    reading: &mut Reading,
) -> Result<Result<Value, String>, Bad> {
    match body {
        Body::Row(row) => Ok(Ok(row.clone())),
        Body::Json(bytes) => parse(&text_of(bytes, line, encoding, reading)?).map(Ok),
        Body::Text(bytes) => Ok(Err(text_of(bytes, line, encoding, reading)?.into_owned())),
    }
}

/// The text of a row that begins at a line; one that is not UTF-8 is read as the user says of such rows.
pub(super) fn text_of<'a>(
    bytes: &'a [u8],
    line: u64,
    encoding: Option<&'static Encoding>,
    reading: &mut Reading,
) -> Result<Cow<'a, str>, Bad> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(Cow::Borrowed(text));
    }
    match encoding::text(bytes.to_vec(), line, encoding) {
        Ok(text) => Ok(Cow::Owned(text)),
        Err(bad) => {
            reading.convert(bad)?;
            Ok(Cow::Owned(excerpt::windows_1252(bytes)))
        }
    }
}

/// The beginning of a row as a report shows it.
fn text_of_body(body: &Body) -> String {
    match body {
        Body::Json(bytes) | Body::Text(bytes) => excerpt::excerpt(bytes),
        Body::Row(row) => excerpt::excerpt(serde_json::to_string(row).unwrap_or_default().as_bytes()),
    }
}

/// The layout of the first row that has a known one.
fn probe(files: &[DataFile], kinds: &[Kind]) -> Outcome<Layout> {
    let (mut probe, mut rows) = (Probe::default(), 0);
    let (rules, first) = (Rules::default(), &files[0].path);
    for (file, kind) in files.iter().zip(kinds).filter(|(_, kind)| kind.container != Container::Text) {
        let mut source = Source::open(&file.path, kind)?;
        while rows < PROBED {
            let Some(raw) = source.next()? else { break };
            rows += 1;
            let line = raw.line;
            let read = raw.body.and_then(|body| match &body {
                // Columns have names of ASCII as a rule; what the rest says is no matter here.
                Body::Json(bytes) if std::str::from_utf8(bytes).is_err() => {
                    parse(&excerpt::windows_1252(bytes)).map(Ok)
                }
                body => understood(body, line, kind.encoding, &mut Reading::new(&rules)),
            });
            match read {
                Ok(Ok(row)) => {
                    if let Some(layout) = probe.row(&row, COLUMNS) {
                        return Ok(layout);
                    }
                }
                Ok(Err(_)) => {}
                Err((_, what)) => probe.unread(line, &what),
            }
        }
    }
    if rows == 0 {
        return Err(Problem::new(Code::FileEmpty, "the file is empty: it has no rows").file(first));
    }
    probe.end().map_err(|problem| problem.file(first))
}
