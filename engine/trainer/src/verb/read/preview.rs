//! One record as the trainer will see it, before any cut.

use super::source::{Texts, TokenizerSource};
use crate::verb::Lines;
use formats::dataset::{self, Record, Row};
use formats::sample::{Sampler, Settings, Whole};
use protocol::facts::{Preview, PreviewToken};
use protocol::{Code, JobSpec, Outcome, Problem};
use std::io::Write;

/// Record `row` (from 1) of the training data; `truncated` speaks of `max_length`.
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
        Ok(whole) => Ok(shown(&record, whole, max_length)),
        // What is wrong with this row alone, or with its layout, is what a preview is for.
        Err(problem) if matches!(problem.code, Code::RowInvalid | Code::LayoutUnfit) => Ok(unusable(row, problem)),
        Err(problem) => Err(problem),
    }
}

fn options(spec: &JobSpec) -> dataset::Options {
    dataset::Options { columns: spec.data.columns.clone() }
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

fn shown(record: &Record, whole: Whole, max_length: u32) -> Preview {
    let length = whole.sample.ids.len() as u64;
    let truncated = length > u64::from(max_length);
    let too_long = || {
        Problem::new(
            Code::RowTooLong,
            format!("the row has {length} tokens; rows of at most {max_length} are trained on"),
        )
        .row(record.row)
    };
    Preview {
        row: record.row,
        tokens: tokens(&whole),
        text: whole.text,
        length,
        truncated,
        problems: truncated.then(too_long).into_iter().collect(),
    }
}

fn tokens(whole: &Whole) -> Vec<PreviewToken> {
    let mut start = 0;
    let parts = whole.sample.ids.iter().zip(&whole.sample.trained).zip(&whole.ends);
    parts
        .map(|((id, trained), end)| {
            let bytes = whole.text.as_bytes().get(start..*end).unwrap_or_default();
            start = start.max(*end);
            PreviewToken { id: *id, text: String::from_utf8_lossy(bytes).into_owned(), trained: *trained != 0 }
        })
        .collect()
}
