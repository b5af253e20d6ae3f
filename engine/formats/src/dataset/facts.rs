//! Facts of a data set: every row is looked at, classes of what is wrong are counted, and rows that repeat an earlier one.

use super::rules::{Rules, Tally};
use super::{Content, Options, Record, Records, Row, files, read};
use protocol::facts::{DatasetFacts, Duplicates, RowProblem};
use protocol::{Outcome, limits};
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Facts of a data set under these decisions. Errors: those of `read`, a failed read.
pub fn inspect(path: &Path, options: &Options) -> Outcome<DatasetFacts> {
    let mut records = read(&[path.to_owned()], options)?;
    let (mut facts, mut seen) = (blank(&records), Seen::default());
    let mut tally = Tally::new(Rules::of(options)?);
    for row in records.by_ref() {
        match row? {
            Row::Record(record) => {
                facts.usable_rows += 1;
                facts.duplicates.rows += u64::from(seen.is_again(&record));
                for converted in record.converted {
                    tally.add(&converted);
                    list(&mut facts.problems, converted);
                }
            }
            Row::Problem(problem) => {
                *facts.problem_counts.entry(problem.code.name()).or_default() += 1;
                tally.add(&problem);
                list(&mut facts.problems, problem);
            }
        }
    }
    facts.rows = records.row;
    facts.classes = tally.classes().to_vec();
    facts.duplicates.exact = !seen.is_full();
    facts.mapping = records.layout.as_ref().map(|layout| layout.mapping(&records.columns)).unwrap_or_default();
    facts.columns = records.columns;
    Ok(facts)
}

fn blank(records: &Records) -> DatasetFacts {
    let layout = records.layout.as_ref();
    DatasetFacts {
        container: records.container.name().into(),
        format: layout.map(|layout| layout.name().to_owned()).unwrap_or_default(),
        stage: layout.and_then(|layout| layout.stage()),
        mapping: BTreeMap::new(),
        rows: 0,
        usable_rows: 0,
        splits: files::splits(&records.paths),
        columns: Vec::new(),
        problems: Vec::new(),
        problem_counts: BTreeMap::new(),
        classes: Vec::new(),
        duplicates: Duplicates::default(),
        bytes: records.bytes_total,
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
    /// True where a record says what one before it said. Blocks of a text are no rows of somebody's.
    fn is_again(&mut self, record: &Record) -> bool {
        if !(record.begins && record.ends) {
            return false;
        }
        let Some(hash) = hash(&record.content) else { return false };
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
