//! One record as the trainer will see it: its tokens, which of them the loss counts, which are left out.

use super::rules::options;
use super::source::{Ready, Texts, TokenizerSource, Words};
use crate::verb::Lines;
use formats::dataset::{self, Content, Record, Row};
use formats::sample::{Cut, Sampler, Settings, Whole};
use protocol::facts::{Preview, PreviewToken, RowProblem};
use protocol::{Code, JobSpec, Outcome, Problem};
use std::io::Write;
use std::ops::Range;

/// Record `row` (from 1) of the training data, under rows of at most `max_length` tokens.
pub fn preview<W: Write>(spec: &JobSpec, row: u64, max_length: u32, lines: &mut Lines<W>) -> Outcome<Preview> {
    let found = find(spec, row, lines)?;
    match found {
        Row::Problem(problem) => Ok(unusable(row, problem.problem())),
        Row::Record(_) => Looked::open(spec.clone(), max_length)?.preview(found),
    }
}

/// The words of a job's model, and how it wants rows to be.
pub struct Looked {
    spec: JobSpec,
    ready: Ready,
    max_length: u32,
}

/// A record in figures.
pub struct Measured {
    /// Tokens before any cut.
    pub tokens: u64,
    /// Those that are trained.
    pub trained: u64,
    /// What is cut of it, or why it is left out.
    pub cut: Option<(Code, String)>,
}

impl Looked {
    /// Opens tokenizer and template; a tokenizer that is to be trained is trained on the data.
    pub fn open(spec: JobSpec, max_length: u32) -> Outcome<Looked> {
        let source = TokenizerSource::of(&spec.model)?;
        let ready = source.open(&std::env::temp_dir(), || Texts::of(&spec.data.train, &options(&spec.data)?))?;
        Ok(Looked { spec, ready, max_length })
    }

    /// A row with all of its tokens. What is wrong with this row alone, or with its layout, is what a preview is for; other
    /// problems are errors.
    pub fn preview(&self, row: Row) -> Outcome<Preview> {
        let record = match row {
            Row::Record(record) => record,
            Row::Problem(problem) => return Ok(unusable(problem.row, problem.problem())),
        };
        let sampler = self.sampler();
        match sampler.whole(&record) {
            Ok(whole) => Ok(shown(&sampler, &record, whole)),
            Err(problem) if matches!(problem.code, Code::RowInvalid | Code::LayoutUnfit) => {
                Ok(unusable(record.row, problem))
            }
            Err(problem) => Err(problem),
        }
    }

    /// Tokens of a record before any cut, how many of them are trained, and what is cut of it or why it is left out.
    pub fn measure(&self, record: &Record) -> Outcome<Measured> {
        let sampler = self.sampler();
        let sample = sampler.whole(record)?.sample;
        let trained = sample.trained.iter().filter(|t| **t != 0).count() as u64;
        let cut = match sampler.cut(&sample, &record.content) {
            Cut::Nothing => None,
            Cut::Prompt(out) => Some((Code::RowTooLong, format!("{} tokens of its prompt are cut", out.len()))),
            Cut::Everything(code, why) => Some((code, why)),
        };
        Ok(Measured { tokens: sample.ids.len() as u64, trained, cut })
    }

    fn sampler(&self) -> Sampler<'_> {
        let Words { tokenizer, template } = &self.ready.words;
        let settings = Settings {
            stage: self.spec.stage,
            max_length: self.max_length,
            too_long: self.spec.data.too_long,
            special_tokens_in_text: self.spec.data.special_tokens_in_text,
            end_of_text: true,
        };
        Sampler { tokenizer, template: template.as_ref(), settings }
    }
}

fn find<W: Write>(spec: &JobSpec, row: u64, lines: &mut Lines<W>) -> Outcome<Row> {
    let mut records = dataset::read(&spec.data.train, &options(&spec.data)?)?;
    let mut seen = 0;
    while let Some(next) = records.next() {
        let next = next?;
        seen += 1;
        let number = match &next {
            Row::Record(record) => record.row,
            Row::Problem(problem) => problem.row,
        };
        if number == row {
            return Ok(next);
        }
        let (done, total) = records.progress();
        lines.progress("reading", done, total, "bytes")?;
    }
    Err(Problem::new(Code::NotFound, format!("there is no row {row}: the data has {seen} rows")).row(row))
}

fn unusable(row: u64, problem: Problem) -> Preview {
    Preview { row, text: String::new(), tokens: Vec::new(), length: 0, truncated: false, problems: vec![problem] }
}

fn shown(sampler: &Sampler, record: &Record, whole: Whole) -> Preview {
    let length = whole.sample.ids.len();
    let (out, problem) = match sampler.cut(&whole.sample, &record.content) {
        Cut::Nothing => (0..0, None),
        Cut::Prompt(out) => {
            let most = sampler.settings.max_length;
            let what = format!("the row has {length} tokens, the limit is {most}: {} of its prompt are cut", out.len());
            (out, Some(Problem::new(Code::RowTooLong, what)))
        }
        Cut::Everything(code, why) => (0..length, Some(Problem::new(code, why))),
    };
    Preview {
        row: record.row,
        tokens: tokens(sampler, record, &whole, out),
        text: whole.text,
        length: length as u64,
        truncated: problem.as_ref().is_some_and(|problem| problem.code == Code::RowTooLong),
        problems: record
            .converted
            .iter()
            .map(RowProblem::problem)
            .chain(problem.map(|problem| problem.row(record.row)))
            .collect(),
    }
}

fn tokens(sampler: &Sampler, record: &Record, whole: &Whole, out: Range<usize>) -> Vec<PreviewToken> {
    // Of a window of plain text the first token predicts nothing.
    let window = match record.content {
        Content::Text(_) => sampler.window(),
        _ => usize::MAX,
    };
    let mut start = 0;
    let parts = whole.sample.ids.iter().zip(&whole.sample.trained).zip(&whole.ends).enumerate();
    parts
        .map(|(at, ((id, trained), end))| {
            let bytes = whole.text.as_bytes().get(start..*end).unwrap_or_default();
            start = start.max(*end);
            let (cut, special) = (out.contains(&at), sampler.tokenizer.is_special(*id));
            let text = match bytes {
                // One that is added behind a text stands for nothing in it.
                [] if special => sampler.tokenizer.token_text(*id),
                _ => String::from_utf8_lossy(bytes).into_owned(),
            };
            PreviewToken { id: *id, text, trained: *trained != 0 && !cut && at % window != 0, cut, special }
        })
        .collect()
}
