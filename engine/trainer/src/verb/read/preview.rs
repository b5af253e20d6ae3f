//! One record as the trainer will see it: its tokens, which of them the loss counts, which are left out.

use super::source::{Texts, TokenizerSource};
use crate::verb::Lines;
use formats::dataset::{self, Content, Record, Row};
use formats::sample::{Cut, Sampler, Settings, Whole};
use protocol::facts::{Preview, PreviewToken};
use protocol::{Code, JobSpec, Outcome, Problem};
use std::io::Write;
use std::ops::Range;

/// Record `row` (from 1) of the training data, under rows of at most `max_length` tokens.
pub fn preview<W: Write>(spec: &JobSpec, row: u64, max_length: u32, lines: &mut Lines<W>) -> Outcome<Preview> {
    let record = match find(spec, row, lines)? {
        Row::Record(record) => record,
        Row::Problem(found) => {
            let problem = Problem::new(found.code, found.message).row(found.row).line(found.line);
            return Ok(unusable(row, problem));
        }
    };
    let source = TokenizerSource::of(&spec.model)?;
    let ready = source.open(&std::env::temp_dir(), || Texts::of(&spec.data.train, &options(spec)))?;
    let words = &ready.words;
    let settings = Settings {
        stage: spec.stage,
        max_length,
        too_long: spec.data.too_long,
        special_tokens_in_text: spec.data.special_tokens_in_text,
        end_of_text: true,
    };
    let sampler = Sampler { tokenizer: &words.tokenizer, template: words.template.as_ref(), settings };
    match sampler.whole(&record) {
        Ok(whole) => Ok(shown(&sampler, &record, whole)),
        // What is wrong with this row alone, or with its layout, is what a preview is for.
        Err(problem) if matches!(problem.code, Code::RowInvalid | Code::LayoutUnfit) => Ok(unusable(row, problem)),
        Err(problem) => Err(problem),
    }
}

fn options(spec: &JobSpec) -> dataset::Options {
    dataset::Options { columns: spec.data.columns.clone(), encoding: Some(spec.data.encoding.clone()) }
}

fn find<W: Write>(spec: &JobSpec, row: u64, lines: &mut Lines<W>) -> Outcome<Row> {
    let mut records = dataset::read(&spec.data.train, &options(spec))?;
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
        problems: problem.map(|problem| problem.row(record.row)).into_iter().collect(),
    }
}

fn tokens(sampler: &Sampler, record: &Record, whole: &Whole, out: Range<usize>) -> Vec<PreviewToken> {
    // Of a window of plain text the first token predicts nothing.
    let window = match record.content {
        Content::Text(_) => sampler.window(),
        Content::Messages(_) => usize::MAX,
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
