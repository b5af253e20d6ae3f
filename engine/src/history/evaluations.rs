//! Table `evaluations`: one row an evaluation of a job. Where several attempts made one, the highest attempt's stays.

use super::failure::Answer;
use super::tally::{self, Tally};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;

/// The table as first made.
pub const SCHEMA: &str = "
    CREATE TABLE evaluations (
        job INTEGER NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL, at_ms INTEGER NOT NULL,
        loss REAL NOT NULL, tokens INTEGER NOT NULL,
        checksum INTEGER NOT NULL, PRIMARY KEY (job, step)) STRICT, WITHOUT ROWID;";

/// A row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationRow {
    /// Steps done when it was made.
    pub step: u64,
    /// Attempt that made it.
    pub attempt: u32,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// Mean loss in nats.
    pub loss: f64,
    /// Target tokens.
    pub tokens: u64,
}

impl EvaluationRow {
    fn checksum(&self, job: i64) -> i64 {
        let (attempt, loss) = (i64::from(self.attempt), tally::bits(self.loss));
        tally::checksum([job, self.step as i64, attempt, self.at_ms, loss, self.tokens as i64])
    }
}

/// Writes a row unless a higher attempt's is there.
pub fn put(db: &Connection, job: i64, row: &EvaluationRow, tally: &mut Tally) -> Answer<()> {
    let mut look = db.prepare_cached("SELECT attempt, checksum FROM evaluations WHERE job = ? AND step = ?")?;
    let present = look.query_row(params![job, row.step as i64], |r| Ok((r.get::<_, u32>(0)?, r.get(1)?))).optional()?;
    match present {
        Some((attempt, _)) if attempt > row.attempt => return Ok(()),
        Some((_, checksum)) => tally.remove(checksum),
        None => {}
    }
    let checksum = row.checksum(job);
    db.prepare_cached("INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?)")?.execute(params![
        job,
        row.step as i64,
        row.attempt,
        row.at_ms,
        row.loss,
        row.tokens as i64,
        checksum
    ])?;
    tally.add(checksum);
    Ok(())
}

/// Evaluations of a job from step `first` to step `last`, by step. The caller bounds the range.
pub fn between(db: &Connection, job: i64, first: u64, last: u64) -> Answer<BTreeMap<u64, EvaluationRow>> {
    let query = "SELECT step, attempt, at_ms, loss, tokens, checksum FROM evaluations \
                 WHERE job = ? AND step BETWEEN ? AND ?";
    let mut query = db.prepare_cached(query)?;
    let mut rows = query.query(params![job, first as i64, last as i64])?;
    let mut found = BTreeMap::new();
    while let Some(r) = rows.next()? {
        let row = read(r, job)?;
        found.insert(row.step, row);
    }
    Ok(found)
}

/// The newest `limit` evaluations of a job that are `wanted`, by step.
pub fn newest(
    db: &Connection,
    job: i64,
    limit: usize,
    wanted: &dyn Fn(&EvaluationRow) -> bool,
) -> Answer<Vec<EvaluationRow>> {
    let query = "SELECT step, attempt, at_ms, loss, tokens, checksum FROM evaluations WHERE job = ? ORDER BY step DESC";
    let mut query = db.prepare_cached(query)?;
    let mut rows = query.query([job])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()?.filter(|_| found.len() < limit) {
        found.extend(Some(read(row, job)?).filter(wanted));
    }
    found.reverse();
    Ok(found)
}

fn read(r: &Row<'_>, job: i64) -> Answer<EvaluationRow> {
    let (step, attempt) = (r.get::<_, i64>(0)? as u64, r.get(1)?);
    let row = EvaluationRow { step, attempt, at_ms: r.get(2)?, loss: r.get(3)?, tokens: r.get::<_, i64>(4)? as u64 };
    tally::prove(row.checksum(job), r.get(5)?, || format!("the evaluation of step {step}"))?;
    Ok(row)
}

/// The tally of the rows that are really there.
pub fn tally(db: &Connection, job: i64) -> Answer<Tally> {
    tally::of(db, "SELECT checksum FROM evaluations WHERE job = ?", job)
}

/// Removes all rows of a job.
pub fn clear(db: &Connection, job: i64) -> Answer<()> {
    db.prepare_cached("DELETE FROM evaluations WHERE job = ?")?.execute([job])?;
    Ok(())
}
