//! `read`: everything that opens a tokenizer, a chat template or the text of a data set, inside limits on memory, time and
//! files. What comes out are token caches (`tokenise.rs`) and previews (`preview.rs`).
//!
//! Not here: how formats are parsed (crate `formats`); the training process, which only maps a cache.

mod crew;
mod feed;
mod preview;
mod rules;
mod source;
mod survey;
#[cfg(test)]
mod tests;
mod tokenise;

use super::Lines;
use crate::process::Limits;
pub use preview::{Looked, Measured};
use protocol::facts::DatasetFacts;
use protocol::job::{DataSpec, EvaluationData};
use protocol::verb::Read;
use protocol::{JobSpec, Outcome, Problem};
pub use rules::records;
use serde::Serialize;
use source::TokenizerSource;
pub use source::Words;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Memory of the sandbox besides what grows with its input: a record of the longest allowed size, parsed and rendered.
const MEMORY: u64 = 512 << 20;
/// Bytes of memory for one of `tokenizer.json`: text, its parsed form, maps in both directions.
const MEMORY_A_TOKENIZER_BYTE: u64 = 8;
/// Address space for one byte of data: the file may be mapped, and so may the tokens made from it.
const MEMORY_A_DATA_BYTE: u64 = 2;
/// Address space that a thread sets aside for its stack and its own heap, most of which it never touches.
const MEMORY_A_THREAD: u64 = 72 << 20;
/// Seconds of processor time for loading alone; the largest tokenizers in use take two.
const SECONDS: u64 = 300;
/// Bytes of data that a second must at least get through; an unoptimised build does twenty times that.
const BYTES_A_SECOND: u64 = 50_000;
/// Open files: data, cache and tokenizer are a dozen.
const FILES: u64 = 64;

/// Limits itself for good, then carries out the request.
pub fn main<W: Write>(request: Read, lines: &mut Lines<W>) -> Outcome<serde_json::Value> {
    match &request {
        Read::Tokenise { spec, .. } | Read::Preview { spec, .. } => limits(spec).apply()?,
        Read::Inspect { path, .. } => inspect_limits(path).apply()?,
    }
    carry_out(request, lines)
}

fn carry_out<W: Write>(request: Read, lines: &mut Lines<W>) -> Outcome<serde_json::Value> {
    match request {
        Read::Tokenise { spec, home, max_length, vocab, end_of_text } => {
            value(&tokenise::Request { spec: &spec, home: &home, max_length, vocab, end_of_text }.carry_out(lines)?)
        }
        Read::Inspect { path, data, most_bytes } => value(&inspect(&path, &data, most_bytes, lines)?),
        Read::Preview { spec, row, max_length } => value(&preview::preview(&spec, row, max_length, lines)?),
    }
}

/// Facts of a data set, read as a job says; how far it is is told on the way.
fn inspect<W: Write>(path: &Path, data: &DataSpec, most_bytes: u64, lines: &mut Lines<W>) -> Outcome<DatasetFacts> {
    let most = if most_bytes == 0 { u64::MAX } else { most_bytes };
    formats::dataset::inspect_within(path, &rules::options(data)?, most, &mut |done, total| {
        lines.progress("reading", done, total, "bytes")
    })
}

fn value<T: Serialize>(result: &T) -> Outcome<serde_json::Value> {
    serde_json::to_value(result).map_err(|e| Problem::internal("the result cannot be written").why(e.to_string()))
}

/// What reading this job's files may cost. Files that are missing count nothing here and are refused when opened.
fn limits(spec: &JobSpec) -> Limits {
    let tokenizer = TokenizerSource::of(&spec.model).map_or(0, |source| source.bytes());
    let data: u64 = data_paths(spec).iter().map(|path| data_bytes(path)).fold(0, u64::saturating_add);
    let memory = MEMORY
        .saturating_add(tokenizer.saturating_mul(MEMORY_A_TOKENIZER_BYTE))
        .saturating_add(crew::threads() as u64 * MEMORY_A_THREAD)
        .saturating_add(data.saturating_mul(MEMORY_A_DATA_BYTE));
    Limits { memory, cpu_seconds: SECONDS + data / BYTES_A_SECOND, files: FILES }
}

/// What looking at data alone may cost: a few records and what is counted are in memory, however long the files.
fn inspect_limits(path: &Path) -> Limits {
    let memory = MEMORY + crew::threads() as u64 * MEMORY_A_THREAD;
    Limits { memory, cpu_seconds: SECONDS + data_bytes(path) / BYTES_A_SECOND, files: FILES }
}

/// Limits itself for looking at the rows of a job, for as long as that takes: an hour of work, and the time to count.
pub fn limit_rows(spec: &JobSpec) -> Outcome<()> {
    let Limits { cpu_seconds, .. } = limits(spec);
    let tokenizer = TokenizerSource::of(&spec.model).map_or(0, |source| source.bytes());
    let memory = MEMORY.saturating_add(tokenizer.saturating_mul(MEMORY_A_TOKENIZER_BYTE));
    Limits { memory, cpu_seconds: cpu_seconds.saturating_add(3600), files: FILES }.apply()
}

/// Limits for opening what lies in a folder and rendering one conversation.
pub fn loading_limits(folder: &Path) -> Limits {
    let tokenizer = TokenizerSource::Folder(folder.to_path_buf()).bytes();
    let memory = MEMORY.saturating_add(tokenizer.saturating_mul(MEMORY_A_TOKENIZER_BYTE));
    Limits { memory, cpu_seconds: SECONDS, files: FILES }
}

fn data_paths(spec: &JobSpec) -> Vec<PathBuf> {
    spec.data.train.iter().cloned().chain(evaluation_paths(&spec.data.evaluation)).collect()
}

/// Files of their own to evaluate on.
fn evaluation_paths(evaluation: &EvaluationData) -> Vec<PathBuf> {
    match evaluation {
        EvaluationData::Fraction(_) => Vec::new(),
        EvaluationData::Path(path) => vec![path.clone()],
        EvaluationData::Paths(paths) => paths.clone(),
    }
}

fn data_bytes(path: &Path) -> u64 {
    let files = formats::dataset::files(path).unwrap_or_default();
    files.iter().filter_map(|file| file.metadata().ok()).map(|m| m.len()).fold(0, u64::saturating_add)
}
