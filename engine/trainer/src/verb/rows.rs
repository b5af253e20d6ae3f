//! `rows`: a reader that stays while a data set is looked at. It gets what it looks at as its first line and a question as
//! every further one, and answers each with the lines of a verb. Between questions it counts the rows that it has not seen
//! yet and notes where some of them begin, so that any row is found at once. It ends with its input.
//!
//! Not here: what a row becomes (`formats::sample`), the tokens of one row (`read/preview.rs`).

use super::Lines;
use super::read::{self, Looked, Measured};
use crate::process::{DONE, REFUSED};
use formats::dataset::{Content, Mark, Record, Records, Row};
use protocol::facts::RowProblem;
use protocol::look::{FoundRow, LookAtRows, RowLine, RowPage, RowsAsk};
use protocol::{Code, Outcome, Problem, limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Rows between two noted places: passing over them takes a blink.
const EVERY: u64 = 512;
/// Rows counted between two looks at the input.
const AT_ONCE: u64 = 2048;
/// Longest time for one answer of a search, and for a page that was not reached yet.
const PATIENCE: Duration = Duration::from_millis(900);
/// Longest line of a question.
const ASK_BYTES: u64 = limits::JOB_BYTES;

/// Answers until the input ends. Returns the exit status.
pub fn main<W: Write>(input: impl Read + AsFd, lines: &mut Lines<W>) -> u8 {
    let mut input = BufReader::new(input);
    let opened = line(&mut input).and_then(|first| match first {
        Some(text) => {
            let look: LookAtRows = super::request(&text[..])?;
            read::limit_rows(&look.spec)?;
            Session::open(look)
        }
        None => Err(Problem::new(Code::SettingInvalid, "nothing is asked")),
    });
    let mut session = match opened {
        Ok(session) => session,
        Err(problem) => return lines.end(Err(problem)),
    };
    loop {
        if !session.complete && !waits(&input) {
            if let Err(problem) = session.count(AT_ONCE) {
                session.broken = Some(problem);
                session.complete = true;
            }
            continue;
        }
        let asked = match line(&mut input) {
            Ok(Some(text)) => super::request::<RowsAsk>(&text[..]),
            Ok(None) => return DONE,
            Err(problem) => return lines.end(Err(problem)),
        };
        let answer = asked.and_then(|ask| session.answer(&ask));
        // Whoever asked may be gone: then there is nobody to read on for.
        if lines.answer(answer).is_err() {
            return REFUSED;
        }
    }
}

/// True where the input has something to say, or has ended.
fn waits(input: &BufReader<impl Read + AsFd>) -> bool {
    let mut fds = [PollFd::new(input.get_ref(), PollFlags::IN)];
    !input.buffer().is_empty() || poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
}

fn line(input: &mut impl BufRead) -> Outcome<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let read = input.take(ASK_BYTES).read_until(b'\n', &mut text);
    read.map_err(|e| Problem::new(Code::SettingInvalid, "the question cannot be read").why(e.to_string()))?;
    match text.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(text)),
        Some(_) => Err(Problem::new(Code::TooLarge, "the question is cut or too long")),
    }
}

/// A data set that is looked at.
struct Session {
    looked: Looked,
    /// Counts rows.
    counter: Records,
    /// Reads those that are asked for.
    reader: Records,
    /// Where every `EVERY`th row begins.
    marks: Vec<Mark>,
    known: u64,
    complete: bool,
    /// Why counting ended before the data did.
    broken: Option<Problem>,
}

impl Session {
    fn open(look: LookAtRows) -> Outcome<Session> {
        let (counter, reader) = (read::records(&look.spec)?, read::records(&look.spec)?);
        let looked = Looked::open(*look.spec, look.max_length)?;
        let marks = vec![counter.mark()];
        Ok(Session { looked, counter, reader, marks, known: 0, complete: false, broken: None })
    }

    /// Counts so many further rows.
    fn count(&mut self, rows: u64) -> Outcome<()> {
        for _ in 0..rows {
            if !self.counter.pass()? {
                self.complete = true;
                return Ok(());
            }
            self.known += 1;
            if self.known.is_multiple_of(EVERY) {
                self.marks.push(self.counter.mark());
            }
        }
        Ok(())
    }

    fn answer(&mut self, ask: &RowsAsk) -> Outcome<serde_json::Value> {
        match ask {
            RowsAsk::Page { from, count } => value(&self.page((*from).max(1), (*count).min(limits::LISTED_ROWS))?),
            RowsAsk::Row { row } => {
                let found = self.at(*row)?.ok_or_else(|| self.missing(*row))?;
                value(&self.looked.preview(found)?)
            }
            RowsAsk::Find { text, from } => value(&self.find(text, (*from).max(1))?),
        }
    }

    fn missing(&self, row: u64) -> Problem {
        let what = format!("there is no row {row}: the data has {} rows", self.known);
        Problem::new(Code::NotFound, what).row(row)
    }

    fn page(&mut self, from: u64, count: u32) -> Outcome<RowPage> {
        let last = from.saturating_add(u64::from(count));
        let start = Instant::now();
        while !self.complete && self.known < last && start.elapsed() < PATIENCE {
            self.count(AT_ONCE)?;
        }
        let mut rows = Vec::new();
        if let Some(first) = self.at(from)? {
            rows.push(self.looked.line(first));
            while rows.len() < count as usize {
                let Some(next) = self.next()? else { break };
                rows.push(self.looked.line(next));
            }
        }
        if let Some(problem) = self.broken.take() {
            return Err(problem);
        }
        Ok(RowPage { rows, known: self.known, complete: self.complete })
    }

    /// This row; `None` past the last one.
    fn at(&mut self, row: u64) -> Outcome<Option<Row>> {
        let index = row.saturating_sub(1);
        let start = Instant::now();
        while !self.complete && self.known <= index && start.elapsed() < PATIENCE {
            self.count(AT_ONCE)?;
        }
        if index >= self.known {
            return Ok(None);
        }
        let mark = (index / EVERY) as usize;
        self.reader.go_to(&self.marks[mark])?;
        for _ in 0..index % EVERY {
            self.reader.pass()?;
        }
        self.next()
    }

    /// The reader's next row; what is said of entries of a folder is no row.
    fn next(&mut self) -> Outcome<Option<Row>> {
        loop {
            match self.reader.next().transpose()? {
                Some(Row::Problem(RowProblem { row: 0, .. })) => {}
                other => return Ok(other),
            }
        }
    }

    fn find(&mut self, text: &str, from: u64) -> Outcome<FoundRow> {
        let (wanted, start) = (text.to_lowercase(), Instant::now());
        let mut next = self.at(from)?;
        let mut row = from;
        while let Some(found) = next {
            if says(&found, &wanted) {
                return Ok(FoundRow { row: Some(row), next: None });
            }
            row += 1;
            if start.elapsed() > PATIENCE {
                return Ok(FoundRow { row: None, next: Some(row) });
            }
            next = self.next()?;
        }
        // The reader may be at the end of what is counted, not of the data.
        let next = (!self.complete && row > self.known).then_some(row);
        Ok(FoundRow { row: None, next })
    }
}

fn value<T: serde::Serialize>(result: &T) -> Outcome<serde_json::Value> {
    serde_json::to_value(result).map_err(|e| Problem::internal("the answer cannot be written").why(e.to_string()))
}

/// True where a row's own words hold the text, whatever their case.
fn says(row: &Row, wanted: &str) -> bool {
    let holds = |text: &str| text.to_lowercase().contains(wanted);
    match row {
        Row::Record(record) => match &record.content {
            Content::Text(text) => holds(text),
            content => content.texts().any(|text| holds(&text)),
        },
        Row::Problem(problem) => holds(&problem.message),
    }
}

impl Looked {
    /// A row as a list shows it.
    fn line(&self, row: Row) -> RowLine {
        match row {
            Row::Problem(problem) => bare(problem.row, Some(problem)),
            Row::Record(record) => self.record_line(&record),
        }
    }

    fn record_line(&self, record: &Record) -> RowLine {
        let (prompt, answer) = brief(&record.content);
        let begun = RowLine { prompt, answer, ..bare(record.row, None) };
        let wrong = |code, message| Some(row_problem(record, code, message));
        match self.measure(record) {
            Ok(Measured { tokens, trained, cut }) => match cut {
                None => RowLine { tokens, trained, ..begun },
                Some((Code::RowTooLong, _)) => RowLine { tokens, trained, too_long: true, ..begun },
                Some((code, message)) => RowLine { problem: wrong(code, message), ..begun },
            },
            Err(problem) => RowLine { problem: wrong(problem.code, problem.sentence()), ..begun },
        }
    }
}

fn bare(row: u64, problem: Option<RowProblem>) -> RowLine {
    let (prompt, answer) = (String::new(), String::new());
    RowLine { row, prompt, answer, tokens: 0, trained: 0, too_long: false, problem }
}

fn row_problem(record: &Record, code: Code, message: String) -> RowProblem {
    RowProblem { row: record.row, line: record.line, code, message, file: String::new(), text: String::new() }
}

/// The beginnings of what is asked and of what is answered.
fn brief(content: &Content) -> (String, String) {
    let short = |text: &str| text.chars().take(limits::LISTED_CHARS).collect::<String>();
    let said = |role: &str| content.said_by(role).map(|text| short(&text)).unwrap_or_default();
    match content {
        Content::Text(text) => (String::new(), short(text)),
        _ => (said("user"), said("assistant")),
    }
}

#[cfg(test)]
mod tests;
