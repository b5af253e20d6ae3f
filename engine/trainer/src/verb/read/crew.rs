//! Rows become samples on all cores: a batch at a time, each row by itself, in the order of the data.
//!
//! Not here: what happens to samples and to rows that give none (`feed.rs`).

use formats::dataset::{Meaning, RawRow, Record, Records, Row};
use formats::sample::{Made, Sampler};
use protocol::facts::RowProblem;
use protocol::{Outcome, Problem};

/// Bytes of a batch for each thread: some hundred rows, so that waking threads costs nothing beside them.
const BATCH: usize = 1 << 18;
/// Rows of a batch for each thread, however short they are.
const ROWS: usize = 1024;
/// Most threads: rows come from one file, which more of them would wait for.
const THREADS: usize = 16;

/// What a row became.
pub enum Worked {
    /// A record, what was made of it, and its tokens before any cut.
    Record(Box<Record>, Outcome<(Made, u64)>),
    /// No record.
    Problem(RowProblem),
}

/// Threads that this machine has for rows.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get()).min(THREADS)
}

/// The next batch of rows; empty at the end of the data.
pub fn batch(records: &mut Records) -> Outcome<Vec<RawRow>> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    let most = threads();
    while bytes < most * BATCH && rows.len() < most * ROWS {
        let Some(row) = records.raw()? else { break };
        bytes += row.bytes();
        rows.push(row);
    }
    Ok(rows)
}

/// What a batch becomes, in its order. Errors: `Internal` where a thread ended.
pub fn work(meaning: &Meaning, sampler: &Sampler, mut rows: Vec<RawRow>) -> Outcome<Vec<Worked>> {
    let share = rows.len().div_ceil(threads()).max(1);
    let mut parts = Vec::new();
    while !rows.is_empty() {
        let rest = rows.split_off(share.min(rows.len()));
        parts.push(std::mem::replace(&mut rows, rest));
    }
    let each = |part: Vec<RawRow>| part.into_iter().map(|row| one(meaning, sampler, row)).collect::<Vec<_>>();
    let Some(first) = (!parts.is_empty()).then(|| parts.remove(0)) else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let others: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| each(part))).collect();
        let mut all = each(first);
        for other in others {
            let more = other.join().map_err(|_| Problem::internal("a thread ended in the middle of a row"))?;
            all.extend(more);
        }
        Ok(all)
    })
}

fn one(meaning: &Meaning, sampler: &Sampler, row: RawRow) -> Worked {
    match meaning.row(row) {
        Row::Problem(problem) => Worked::Problem(problem),
        Row::Record(record) => {
            let made = sampler.measured(&record);
            Worked::Record(Box::new(record), made)
        }
    }
}
