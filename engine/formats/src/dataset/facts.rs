//! Facts of a data set: every row is looked at, classes of what is wrong are counted, and rows that repeat an earlier one.

use super::meaning::{Meaning, RawRow};
use super::rules::{Rules, Tally};
use super::sniff::{Container, Kind};
use super::stream::Source;
use super::sweep::{Ended, Sweep, Swept};
use super::{COLUMNS, Content, Options, Record, Row, files};
use hashbrown::HashSet;
use protocol::facts::{DatasetFacts, Duplicates, RowProblem};
use protocol::{Outcome, limits};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Facts of a data set under these decisions. Errors: those of `read`, a failed read.
pub fn inspect(path: &Path, options: &Options) -> Outcome<DatasetFacts> {
    inspect_within(path, options, u64::MAX, &mut |_, _| Ok(()))
}

/// The same of about the first `most` bytes; `progress` is told bytes looked at and in all, and may end it.
pub fn inspect_within(
    path: &Path,
    options: &Options,
    most: u64,
    progress: &mut dyn FnMut(u64, u64) -> Outcome<()>,
) -> Outcome<DatasetFacts> {
    let listing = files::list(path)?;
    let meaning = Arc::new(Meaning::of(files::trained(&listing.files), options)?);
    let mut look = Look::new(&meaning, Tally::new(Rules::of(options)?));
    look.facts.splits = files::splits(listing.files.iter());
    listing.skipped.into_iter().for_each(|entry| look.problem(entry));
    for file in 0..meaning.files.len() {
        if look.bytes >= most {
            look.facts.complete = false;
            break;
        }
        match meaning.kinds[file] {
            Kind { container: Container::Jsonl, encoding: None, .. } => look.sweep(file, most, progress)?,
            _ => look.one_by_one(file, most, progress)?,
        }
    }
    Ok(look.end())
}

/// What was seen of a data set so far.
struct Look<'a> {
    meaning: &'a Arc<Meaning>,
    facts: DatasetFacts,
    tally: Tally,
    seen: Seen,
    columns: Vec<String>,
    bytes: u64,
}

impl<'a> Look<'a> {
    fn new(meaning: &'a Arc<Meaning>, tally: Tally) -> Look<'a> {
        let (facts, seen, columns) = (blank(meaning), Seen::default(), Vec::new());
        Look { meaning, facts, tally, seen, columns, bytes: 0 }
    }

    /// A file of JSON lines, by all cores.
    fn sweep(&mut self, file: usize, most: u64, progress: &mut dyn FnMut(u64, u64) -> Outcome<()>) -> Outcome<()> {
        let (meaning, columns) = (self.meaning, self.columns.clone());
        let sweep = Sweep { layout: &meaning.layout, rules: &meaning.rules, columns: &columns };
        let (left, total) = (most.saturating_sub(self.bytes), meaning.bytes());
        let mut lines = 0;
        let ended = sweep.file(&meaning.files[file].path, left, |swept| {
            self.swept(file, lines, &swept);
            lines += swept.lines;
            progress(self.bytes.min(total), total)
        })?;
        self.facts.complete &= ended == Ended::Whole;
        Ok(())
    }

    fn swept(&mut self, file: usize, lines: u64, swept: &Swept) {
        for name in &swept.columns {
            if self.columns.len() < COLUMNS && !self.columns.contains(name) {
                self.columns.push(name.clone());
            }
        }
        // Every kind has its first row among those that are told.
        let mut left = swept.counts.clone();
        for found in &swept.found {
            let (row, line) = (self.facts.rows + found.row, lines + found.line + 1);
            let problem = self.meaning.problem(file, row, line, found.bad.clone(), found.text.clone());
            if let Some(count) = left.remove(&(found.bad.0, found.converted)) {
                self.tally.add_rows(&problem, count);
                if !found.converted {
                    *self.facts.problem_counts.entry(found.bad.0.name()).or_default() += count;
                }
            }
            list(&mut self.facts.problems, problem);
        }
        self.facts.rows += swept.rows;
        self.facts.usable_rows += swept.usable;
        self.facts.duplicates.rows += swept.hashes.iter().map(|hash| u64::from(self.seen.is_again(*hash))).sum::<u64>();
        self.bytes += swept.bytes;
    }

    /// A file of another container.
    fn one_by_one(&mut self, file: usize, most: u64, progress: &mut dyn FnMut(u64, u64) -> Outcome<()>) -> Outcome<()> {
        let (before, total) = (self.bytes, self.meaning.bytes());
        let mut source = Source::open(&self.meaning.files[file].path, &self.meaning.kinds[file])?;
        while let Some(raw) = source.next()? {
            self.facts.rows += 1;
            let raw = RawRow { raw, file, row: self.facts.rows };
            match self.meaning.row_with(raw, &mut self.columns) {
                Row::Record(record) => self.record(record),
                Row::Problem(problem) => self.problem(problem),
            }
            self.bytes = before + source.position().min(self.meaning.kinds[file].length);
            if self.facts.rows.is_multiple_of(256) {
                progress(self.bytes, total)?;
            }
            if self.bytes >= most && self.bytes < total {
                self.facts.complete = false;
                return Ok(());
            }
        }
        self.bytes = before + self.meaning.kinds[file].length;
        progress(self.bytes, total)
    }

    fn record(&mut self, record: Record) {
        self.facts.usable_rows += 1;
        // Blocks of a text are no rows of somebody's.
        if record.begins && record.ends {
            let again = hash(&record.content).is_some_and(|hash| self.seen.is_again(hash));
            self.facts.duplicates.rows += u64::from(again);
        }
        for converted in record.converted {
            self.tally.add(&converted);
            list(&mut self.facts.problems, converted);
        }
    }

    fn problem(&mut self, problem: RowProblem) {
        *self.facts.problem_counts.entry(problem.code.name()).or_default() += 1;
        self.tally.add(&problem);
        list(&mut self.facts.problems, problem);
    }

    fn end(mut self) -> DatasetFacts {
        self.facts.classes = self.tally.classes().to_vec();
        self.facts.duplicates.exact = !self.seen.is_full();
        self.facts.mapping = self.meaning.layout.mapping(&self.columns);
        self.facts.columns = self.columns;
        self.facts
    }
}

fn blank(meaning: &Meaning) -> DatasetFacts {
    DatasetFacts {
        container: meaning.containers(),
        format: meaning.layout.name().to_owned(),
        stage: meaning.layout.stage(),
        mapping: BTreeMap::new(),
        rows: 0,
        usable_rows: 0,
        splits: Vec::new(),
        columns: Vec::new(),
        problems: Vec::new(),
        problem_counts: BTreeMap::new(),
        classes: Vec::new(),
        duplicates: Duplicates::default(),
        bytes: meaning.bytes(),
        complete: true,
    }
}

fn list(problems: &mut Vec<RowProblem>, problem: RowProblem) {
    if problems.len() < limits::LISTED_ROW_PROBLEMS {
        problems.push(problem);
    }
}

/// What whole records said, as hashes, up to a bound.
#[derive(Default)]
struct Seen {
    hashes: HashSet<u128>,
}

impl Seen {
    /// True where a record says what one before it said.
    fn is_again(&mut self, hash: u128) -> bool {
        if self.is_full() {
            return self.hashes.contains(&hash);
        }
        !self.hashes.insert(hash)
    }

    fn is_full(&self) -> bool {
        self.hashes.len() >= limits::ROWS_COMPARED
    }
}

fn hash(content: &Content) -> Option<u128> {
    let mut hashed = Hashed(Xxh3::new());
    let mut put = |value: &minijinja::Value| serde_json::to_writer(&mut hashed, value).ok();
    match content {
        Content::Text(text) => hashed.0.update(text.as_bytes()),
        Content::Messages(said) => {
            said.turns.iter().try_for_each(&mut put)?;
            said.tools.iter().try_for_each(&mut put)?;
        }
        Content::Preference { asked, chosen, rejected } => {
            for turns in [asked, chosen, rejected] {
                turns.iter().try_for_each(&mut put)?;
                put(&minijinja::Value::UNDEFINED)?;
            }
        }
        Content::Labelled { turns, good } => {
            turns.iter().try_for_each(&mut put)?;
            put(&minijinja::Value::from(*good))?;
        }
    }
    Some(hashed.0.digest128())
}

/// A hash as something to write to.
struct Hashed(Xxh3);

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
