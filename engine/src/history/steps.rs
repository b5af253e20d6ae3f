//! Table `steps`: one row a step of a job. Where several attempts made a step, the highest attempt's row stays.

use super::failure::Answer;
use super::tally::{self, Tally};
use protocol::event::Step;
use rusqlite::{Connection, OptionalExtension, Row, params};

/// The table as first made.
pub const SCHEMA: &str = "
    CREATE TABLE steps (
        job INTEGER NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL, at_ms INTEGER NOT NULL,
        loss REAL NOT NULL, grad_norm REAL NOT NULL, learning_rate REAL NOT NULL, targets INTEGER NOT NULL,
        tokens INTEGER NOT NULL, epoch REAL NOT NULL, step_ms REAL NOT NULL, tokens_per_second REAL NOT NULL,
        checksum INTEGER NOT NULL, PRIMARY KEY (job, step)) STRICT, WITHOUT ROWID;";

const COLUMNS: &str = "step, attempt, at_ms, loss, grad_norm, learning_rate, targets, tokens, epoch, step_ms, \
                       tokens_per_second, checksum";

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// Attempt that made it.
    pub attempt: u32,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// What was measured.
    pub step: Step,
}

impl StepRow {
    /// The row of a step that was left out after `before`: its loss and gradient norm are no numbers.
    pub fn gap(step: u64, attempt: u32, at_ms: i64, before: Option<StepRow>) -> StepRow {
        let (tokens, epoch) = before.map_or((0, 0.0), |row| (row.step.tokens, row.step.epoch));
        let (loss, grad_norm) = (f64::NAN, f64::NAN);
        let (learning_rate, targets, step_ms, tokens_per_second) = (0.0, 0, 0.0, 0.0);
        let step = Step { step, loss, grad_norm, learning_rate, targets, tokens, epoch, step_ms, tokens_per_second };
        StepRow { attempt, at_ms, step }
    }

    fn checksum(&self, job: i64) -> i64 {
        let s = &self.step;
        tally::checksum([
            job,
            s.step as i64,
            i64::from(self.attempt),
            self.at_ms,
            tally::bits(s.loss),
            tally::bits(s.grad_norm),
            tally::bits(s.learning_rate),
            s.targets as i64,
            s.tokens as i64,
            tally::bits(s.epoch),
            tally::bits(s.step_ms),
            tally::bits(s.tokens_per_second),
        ])
    }

    fn read(row: &Row<'_>, job: i64) -> Answer<StepRow> {
        let found = StepRow {
            attempt: row.get(1)?,
            at_ms: row.get(2)?,
            step: Step {
                step: row.get::<_, i64>(0)? as u64,
                loss: or_gap(row.get(3)?),
                grad_norm: or_gap(row.get(4)?),
                learning_rate: row.get(5)?,
                targets: row.get::<_, i64>(6)? as u64,
                tokens: row.get::<_, i64>(7)? as u64,
                epoch: row.get(8)?,
                step_ms: row.get(9)?,
                tokens_per_second: row.get(10)?,
            },
        };
        let step = found.step.step;
        tally::prove(found.checksum(job), row.get(11)?, || format!("step {step}"))?;
        Ok(found)
    }
}

/// Writes a row unless a higher attempt's is there; within an attempt the later line wins. `fresh` says that the job has
/// no row at or above this step, which saves the look (nearly always so).
pub fn put(db: &Connection, job: i64, row: &StepRow, fresh: bool, tally: &mut Tally) -> Answer<()> {
    let s = &row.step;
    if !fresh {
        match attempt_and_checksum(db, job, s.step)? {
            Some((attempt, _)) if attempt > row.attempt => return Ok(()),
            Some((_, checksum)) => remove(db, job, s.step, checksum, tally)?,
            None => {}
        }
    }
    let checksum = row.checksum(job);
    db.prepare_cached("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?.execute(params![
        job,
        s.step as i64,
        row.attempt,
        row.at_ms,
        or_mark(s.loss),
        or_mark(s.grad_norm),
        s.learning_rate,
        s.targets as i64,
        s.tokens as i64,
        s.epoch,
        s.step_ms,
        s.tokens_per_second,
        checksum
    ])?;
    tally.add(checksum);
    Ok(())
}

fn attempt_and_checksum(db: &Connection, job: i64, step: u64) -> Answer<Option<(u32, i64)>> {
    let mut look = db.prepare_cached("SELECT attempt, checksum FROM steps WHERE job = ? AND step = ?")?;
    Ok(look.query_row(params![job, step as i64], |r| Ok((r.get(0)?, r.get(1)?))).optional()?)
}

fn remove(db: &Connection, job: i64, step: u64, checksum: i64, tally: &mut Tally) -> Answer<()> {
    db.prepare_cached("DELETE FROM steps WHERE job = ? AND step = ?")?.execute(params![job, step as i64])?;
    tally.remove(checksum);
    Ok(())
}

/// Up to `limit` rows of a job above step `after`, in order.
pub fn above(db: &Connection, job: i64, after: u64, limit: usize) -> Answer<Vec<StepRow>> {
    let query = format!("SELECT {COLUMNS} FROM steps WHERE job = ? AND step > ? ORDER BY step LIMIT ?");
    let mut query = db.prepare_cached(&query)?;
    let mut rows = query.query(params![job, after as i64, limit as i64])?;
    let mut found = Vec::with_capacity(limit);
    while let Some(row) = rows.next()? {
        found.push(StepRow::read(row, job)?);
    }
    Ok(found)
}

/// The row before a step, if there is one.
pub fn newest_below(db: &Connection, job: i64, step: u64) -> Answer<Option<StepRow>> {
    let query = format!("SELECT {COLUMNS} FROM steps WHERE job = ? AND step < ? ORDER BY step DESC LIMIT 1");
    let mut query = db.prepare_cached(&query)?;
    let mut rows = query.query(params![job, step as i64])?;
    rows.next()?.map(|row| StepRow::read(row, job)).transpose()
}

/// SQLite takes NaN for NULL, so a loss that is none is kept as what no loss is: infinite.
fn or_mark(number: f64) -> f64 {
    if number.is_nan() { f64::INFINITY } else { number }
}

fn or_gap(number: f64) -> f64 {
    if number == f64::INFINITY { f64::NAN } else { number }
}

/// The tally of the rows that are really there.
pub fn tally(db: &Connection, job: i64) -> Answer<Tally> {
    let mut query = db.prepare_cached("SELECT checksum FROM steps WHERE job = ?")?;
    let mut rows = query.query([job])?;
    let mut tally = Tally::default();
    while let Some(row) = rows.next()? {
        tally.add(row.get(0)?);
    }
    Ok(tally)
}

/// Removes all rows of a job.
pub fn clear(db: &Connection, job: i64) -> Answer<()> {
    db.prepare_cached("DELETE FROM steps WHERE job = ?")?.execute([job])?;
    Ok(())
}
