//! Records become samples of a token cache; rows that are none are counted by class, or refuse the job.
//!
//! Not here: which records are evaluated on, and when a cache is made at all (`tokenise.rs`).

use super::crew::{self, Worked};
use super::survey::Lengths;
use crate::verb::Lines;
use formats::dataset::{Record, Records, Row, Rules, Tally};
use formats::sample::{Made, Sampler};
use formats::tokens::{CacheWriter, Set};
use protocol::facts::{RowClass, RowProblem};
use protocol::job::RowAction;
use protocol::rows::Class;
use protocol::{Code, Outcome, Problem};
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

/// Conversations of a data set on which template and tokenizer are held against each other.
const COMPARED: u64 = 8;

/// What became of all records.
#[derive(Debug, PartialEq, Eq)]
pub enum Fed {
    /// They are in the cache.
    Done,
    /// All of these rows that can be used are evaluated on.
    NothingToTrainOn {
        /// Rows in all.
        rows: u64,
    },
}

/// Turns records into samples of the cache.
pub struct Feed<'a> {
    sampler: Sampler<'a>,
    tally: Tally,
    writer: &'a mut CacheWriter,
    bound: u32,
    rows: u64,
    /// Conversations over the limit whose prompt was cut.
    shortened: u64,
    compared: u64,
    noted: BTreeSet<&'static str>,
    lengths: Lengths,
}

impl<'a> Feed<'a> {
    /// Nothing fed yet; ids must lie below `bound`.
    pub fn new(sampler: Sampler<'a>, rules: Rules, writer: &'a mut CacheWriter, bound: u32) -> Feed<'a> {
        let tally = Tally::new(rules);
        Feed {
            sampler,
            tally,
            writer,
            bound,
            rows: 0,
            shortened: 0,
            compared: 0,
            noted: BTreeSet::new(),
            lengths: Lengths::default(),
        }
    }

    /// Feeds all records, each into its set. Errors: the refusal of a class of rows that the job leaves undecided or
    /// refuses, and what stops a job in `Sampler::samples`.
    pub fn records<W: Write>(
        &mut self,
        mut records: Records,
        set: impl Fn(u64) -> Set,
        lines: &mut Lines<W>,
    ) -> Outcome<()> {
        for entry in records.entries() {
            self.leave_out(set(entry.row), &entry);
        }
        let meaning = Arc::clone(records.meaning());
        loop {
            let rows = crew::batch(&mut records)?;
            if rows.is_empty() {
                return Ok(());
            }
            let mut worked = crew::work(&meaning, &self.sampler, rows)?.into_iter();
            while let Some(next) = worked.next() {
                self.rows += 1;
                match next {
                    Worked::Record(record, made) => self.record(&record, made, set(record.row))?,
                    Worked::Problem(row) if self.tally.stops(row.code) => {
                        return Err(self.refusal(row, worked, records)?);
                    }
                    Worked::Problem(row) => self.leave_out(set(row.row), &row),
                }
            }
            let (done, total) = records.progress();
            lines.progress("tokenising", done, total, "bytes")?;
        }
    }

    fn record(&mut self, record: &Record, made: Outcome<(Made, u64)>, set: Set) -> Outcome<()> {
        record.converted.iter().for_each(|row| self.tally.add(row));
        let (made, length) = made.map_err(|problem| at_row(problem, record))?;
        if set == Set::Train && length > 0 {
            let (most, learnt) = (u64::from(self.sampler.settings.max_length), !matches!(made, Made::Dropped(..)));
            self.lengths.add(record.row, length, most, learnt);
        }
        match made {
            Made::Samples(samples) => samples.iter().try_for_each(|sample| self.push(set, sample, record))?,
            Made::Shortened(sample, _) => {
                self.shortened += 1;
                self.push(set, &sample, record)?;
            }
            Made::Dropped(code, message) => {
                let row = made_none(record, code, message);
                if self.tally.stops(code) {
                    return Err(refused(&row));
                }
                self.leave_out(set, &row);
                return Ok(());
            }
        }
        self.compare(record)
    }

    fn push(&mut self, set: Set, sample: &formats::sample::Sample, record: &Record) -> Outcome<()> {
        self.check_ids(&sample.ids).map_err(|problem| at_row(problem, record))?;
        self.writer.push(set, sample)
    }

    fn leave_out(&mut self, set: Set, row: &RowProblem) {
        self.writer.count_dropped(set, row.code);
        self.tally.add(row);
    }

    /// Notes what template and tokenizer disagree on, each kind once.
    fn compare(&mut self, record: &Record) -> Outcome<()> {
        if self.compared >= COMPARED {
            return Ok(());
        }
        self.compared += 1;
        for found in self.sampler.disagreements(record).map_err(|problem| at_row(problem, record))? {
            if self.noted.insert(found.kind) {
                self.writer.note(found.text);
            }
        }
        Ok(())
    }

    /// The refusal by a row's class, with how many there are: the rest is read for that alone.
    fn refusal(&mut self, row: RowProblem, worked: impl Iterator<Item = Worked>, records: Records) -> Outcome<Problem> {
        self.tally.add(&row);
        for next in worked {
            self.rows += 1;
            if let Worked::Problem(other) = next {
                self.tally.add(&other);
            }
        }
        for next in records {
            self.rows += 1;
            if let Row::Problem(other) = next? {
                self.tally.add(&other);
            }
        }
        Ok(self.tally.refusal(self.rows).unwrap_or_else(|| row.problem()))
    }

    fn check_ids(&self, ids: &[u32]) -> Outcome<()> {
        match ids.iter().find(|id| **id >= self.bound) {
            None => Ok(()),
            Some(id) => Err(Problem::new(
                Code::TokenizerInvalid,
                format!("the tokenizer gives id {id}, the model's vocabulary has {} entries", self.bound),
            )
            .remedy("use the tokenizer that the model was trained with")),
        }
    }

    /// Ends it: `share` tells that a share of the rows is evaluated on, `own` that files of their own are. Refuses an empty
    /// training set; notes what was left out, and an empty evaluation set that was asked for.
    pub fn end(mut self, share: bool, own: bool) -> Outcome<Fed> {
        self.writer.surveyed(std::mem::take(&mut self.lengths).survey());
        let evaluated = self.writer.counted(Set::Evaluation).targets;
        if self.writer.counted(Set::Train).targets == 0 {
            if share && evaluated > 0 {
                return Ok(Fed::NothingToTrainOn { rows: self.rows });
            }
            return Err(self.nothing_to_train_on());
        }
        let most = self.sampler.settings.max_length;
        for class in self.tally.classes() {
            self.writer.note(said(class, self.rows, self.shortened, most));
        }
        if self.shortened > 0 && !self.tally.classes().iter().any(|class| class.code == Code::RowTooLong) {
            self.writer
                .note(format!("{} of {} rows exceed {most} tokens: their prompts are cut", self.shortened, self.rows));
        }
        if (share || own) && evaluated == 0 {
            self.writer.note("evaluation is off: no usable row fell into the evaluation set");
        }
        Ok(Fed::Done)
    }

    /// The problem of an empty training set: how many rows of each class, and the first of them.
    fn nothing_to_train_on(&self) -> Problem {
        let classes = self.tally.classes();
        let counts: Vec<String> = classes.iter().map(|class| format!("{} {}", class.rows, class.code.name())).collect();
        let remedy = match classes.iter().any(|class| class.code == Code::RowTooLong) {
            true => "raise data.max_length, or set data.too_long = \"truncate_prompt\"",
            false => "see `anneal inspect` and `anneal preview` on this data",
        };
        let what = format!("none of {} rows can be trained on", self.rows);
        let problem = Problem::new(Code::NoUsableRows, what).remedy(remedy);
        match classes.first() {
            Some(class) => {
                let first = &class.first;
                let why = format!("{}; the first: {}", counts.join(", "), first.message);
                problem.why(why).row(first.row).line(first.line)
            }
            None => problem,
        }
    }
}

/// A class of rows for people. `most` is the limit in tokens.
fn said(class: &RowClass, rows: u64, shortened: u64, most: u32) -> String {
    let count = class.rows;
    if class.code == Code::RowTooLong {
        let cut = if shortened > 0 { format!("; {shortened} more have their prompts cut") } else { String::new() };
        return format!("{count} of {rows} rows exceed {most} tokens and are left out{cut}");
    }
    let done = match class.decision {
        Some(RowAction::Convert) => "converted",
        _ => "left out",
    };
    let first = &class.first;
    format!(
        "{count} of {rows} rows are {done} ({}); the first is row {}: {}",
        class.code.name(),
        first.row,
        first.message
    )
}

/// A record that gives no sample.
fn made_none(record: &Record, code: Code, message: String) -> RowProblem {
    RowProblem { row: record.row, line: record.line, code, message, file: String::new(), text: String::new() }
}

/// The refusal of a record that gives no sample and must not be.
fn refused(row: &RowProblem) -> Problem {
    let name = row.code.name();
    let problem = row.problem().why(format!("the job refuses rows of the class {name}"));
    match Class::of(row.code) {
        Some(class) => problem.field(class.field()).remedy(class.remedy()),
        None => problem,
    }
}

fn at_row(problem: Problem, record: &Record) -> Problem {
    let row = problem.place.row.unwrap_or(record.row);
    problem.row(row)
}
