//! Table `blocks`: the steps of a job, 256 of them a row. Where several attempts made a step, the highest attempt's stays.
//!
//! A row a step (table `steps` of version 1, empty now) cost three microseconds to write and half a second to read a million
//! of. A block is written when its last step is known, or when a transaction ends; it holds one column after the other, so
//! that a curve takes the columns it draws as slices.

use super::failure::{Answer, Failure};
use super::overview::{self, Overview, Stamp};
use super::tally::{self, Tally};
use protocol::event::Step;
use rusqlite::{Connection, OptionalExtension, params};

/// The table of version 1.
pub const SCHEMA_1: &str = "
    CREATE TABLE steps (
        job INTEGER NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL, at_ms INTEGER NOT NULL,
        loss REAL NOT NULL, grad_norm REAL NOT NULL, learning_rate REAL NOT NULL, targets INTEGER NOT NULL,
        tokens INTEGER NOT NULL, epoch REAL NOT NULL, step_ms REAL NOT NULL, tokens_per_second REAL NOT NULL,
        checksum INTEGER NOT NULL, PRIMARY KEY (job, step)) STRICT, WITHOUT ROWID;";

/// The table since version 2. `columns` comes last: who reads checksums only does not touch it.
pub const SCHEMA_2: &str = "
    DELETE FROM steps;
    CREATE TABLE blocks (
        job INTEGER NOT NULL, block INTEGER NOT NULL, checksum INTEGER NOT NULL, columns BLOB NOT NULL,
        PRIMARY KEY (job, block)) STRICT;";

/// Steps of a block: block n holds steps n × 256 up to (n + 1) × 256 - 1, those that were made. Full, it has 22 KB: enough
/// that SQLite's work for a row is a hundredth of the whole, and little to write again for each second of a slow run.
const BLOCK: u64 = 256;
const COLUMNS: usize = 11;
const WORD: usize = 8;

/// A step of a job.
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

    fn words(&self) -> [u64; COLUMNS] {
        let s = &self.step;
        [
            s.step,
            u64::from(self.attempt),
            self.at_ms as u64,
            s.loss.to_bits(),
            s.grad_norm.to_bits(),
            s.learning_rate.to_bits(),
            s.targets,
            s.tokens,
            s.epoch.to_bits(),
            s.step_ms.to_bits(),
            s.tokens_per_second.to_bits(),
        ]
    }
}

/// The steps of one block, as stored.
pub struct Columns<'a> {
    bytes: &'a [u8],
    /// Steps in it.
    pub rows: usize,
}

impl Columns<'_> {
    fn word(&self, column: usize, row: usize) -> u64 {
        let at = (column * self.rows + row) * WORD;
        self.bytes[at..at + WORD].try_into().map_or(0, u64::from_le_bytes)
    }

    fn number(&self, column: usize, row: usize) -> f64 {
        f64::from_bits(self.word(column, row))
    }

    /// Where a row stands on each axis.
    pub fn stamp(&self, row: usize) -> Stamp {
        Stamp { step: self.step(row), at_ms: self.at_ms(row), tokens: self.tokens(row) }
    }

    /// Step of a row.
    pub fn step(&self, row: usize) -> u64 {
        self.word(0, row)
    }

    /// When it was made.
    pub fn at_ms(&self, row: usize) -> i64 {
        self.word(2, row) as i64
    }

    /// Its loss.
    pub fn loss(&self, row: usize) -> f64 {
        self.number(3, row)
    }

    /// Its gradient's norm.
    pub fn grad_norm(&self, row: usize) -> f64 {
        self.number(4, row)
    }

    /// Its learning rate.
    pub fn learning_rate(&self, row: usize) -> f64 {
        self.number(5, row)
    }

    /// Tokens trained on after it.
    pub fn tokens(&self, row: usize) -> u64 {
        self.word(7, row)
    }

    /// Its wall time.
    pub fn step_ms(&self, row: usize) -> f64 {
        self.number(9, row)
    }

    /// Its speed.
    pub fn tokens_per_second(&self, row: usize) -> f64 {
        self.number(10, row)
    }

    fn row(&self, row: usize) -> StepRow {
        StepRow {
            attempt: self.word(1, row) as u32,
            at_ms: self.at_ms(row),
            step: Step {
                step: self.step(row),
                loss: self.loss(row),
                grad_norm: self.grad_norm(row),
                learning_rate: self.learning_rate(row),
                targets: self.word(6, row),
                tokens: self.tokens(row),
                epoch: self.number(8, row),
                step_ms: self.step_ms(row),
                tokens_per_second: self.tokens_per_second(row),
            },
        }
    }
}

fn bytes_of(rows: &[StepRow]) -> Vec<u8> {
    let mut bytes = vec![0; rows.len() * COLUMNS * WORD];
    for (i, row) in rows.iter().enumerate() {
        for (column, word) in row.words().into_iter().enumerate() {
            let at = (column * rows.len() + i) * WORD;
            bytes[at..at + WORD].copy_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

fn checksum(job: i64, block: u64, bytes: &[u8]) -> i64 {
    tally::checksum([job, block as i64, tally::bytes(bytes)])
}

/// The steps of a stored block, proved.
fn columns(job: i64, block: u64, checksum_there: i64, bytes: &[u8]) -> Answer<Columns<'_>> {
    if checksum(job, block, bytes) != checksum_there {
        return Err(Failure::Damaged(format!(
            "the steps from {} on have a wrong checksum",
            block.saturating_mul(BLOCK)
        )));
    }
    Ok(Columns { bytes, rows: bytes.len() / (COLUMNS * WORD) })
}

/// Takes the steps of one job in, in any order. What was put is in the table once `close` was called.
pub struct Writing {
    job: i64,
    open: Option<Open>,
}

/// The block that the newest step fell into.
struct Open {
    block: u64,
    /// By step.
    rows: Vec<StepRow>,
    /// Of the row in the table that it replaces.
    stored: Option<i64>,
    changed: bool,
}

impl Writing {
    /// Nothing put yet.
    pub fn new(job: i64) -> Writing {
        Writing { job, open: None }
    }

    /// Puts a row unless a higher attempt's is there; within an attempt the later line wins.
    pub fn put(&mut self, db: &Connection, row: StepRow, tally: &mut Tally) -> Answer<()> {
        let block = row.step.step / BLOCK;
        if self.open.as_ref().is_none_or(|open| open.block != block) {
            self.close(db, tally)?;
            self.open = Some(Open::read(db, self.job, block)?);
        }
        if let Some(open) = &mut self.open {
            open.put(row);
        }
        Ok(())
    }

    /// The row before a step, if there is one.
    pub fn newest_below(&mut self, db: &Connection, step: u64, tally: &mut Tally) -> Answer<Option<StepRow>> {
        let below = |rows: &[StepRow]| rows.iter().rev().find(|row| row.step.step < step).cloned();
        if let Some(open) = self.open.as_ref().filter(|open| open.block == step / BLOCK)
            && let Some(row) = below(&open.rows)
        {
            return Ok(Some(row));
        }
        self.close(db, tally)?;
        let query = "SELECT block FROM blocks WHERE job = ? AND block <= ? ORDER BY block DESC LIMIT 2";
        let mut query = db.prepare_cached(query)?;
        let blocks = query.query_map(params![self.job, (step / BLOCK) as i64], |r| r.get::<_, i64>(0))?;
        for block in blocks {
            let rows = Open::read(db, self.job, block? as u64)?.rows;
            if let Some(row) = below(&rows) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// Writes what is not in the table yet.
    pub fn close(&mut self, db: &Connection, tally: &mut Tally) -> Answer<()> {
        let Some(open) = self.open.take().filter(|open| open.changed) else { return Ok(()) };
        let bytes = bytes_of(&open.rows);
        let checksum = checksum(self.job, open.block, &bytes);
        db.prepare_cached("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)")?.execute(params![
            self.job,
            open.block as i64,
            checksum,
            bytes
        ])?;
        Overview::of(open.block, &open.rows).map_or(Ok(()), |overview| overview.put(db, self.job, checksum))?;
        open.stored.into_iter().for_each(|before| tally.remove(before));
        tally.add(checksum);
        Ok(())
    }
}

impl Open {
    fn read(db: &Connection, job: i64, block: u64) -> Answer<Open> {
        let mut look = db.prepare_cached("SELECT checksum, columns FROM blocks WHERE job = ? AND block = ?")?;
        let there: Option<(i64, Vec<u8>)> =
            look.query_row(params![job, block as i64], |r| Ok((r.get(0)?, r.get(1)?))).optional()?;
        let mut rows = Vec::with_capacity(BLOCK as usize);
        if let Some((checksum, bytes)) = &there {
            let columns = columns(job, block, *checksum, bytes)?;
            rows.extend((0..columns.rows).map(|row| columns.row(row)));
        }
        Ok(Open { block, rows, stored: there.map(|(checksum, _)| checksum), changed: false })
    }

    fn put(&mut self, row: StepRow) {
        let step = row.step.step;
        match self.rows.last() {
            Some(last) if last.step.step >= step => match self.rows.binary_search_by_key(&step, |r| r.step.step) {
                Ok(at) if self.rows[at].attempt > row.attempt => return,
                Ok(at) => self.rows[at] = row,
                Err(at) => self.rows.insert(at, row),
            },
            _ => self.rows.push(row),
        }
        self.changed = true;
    }
}

/// Up to `limit` rows of a job above step `after`, in order.
pub fn above(db: &Connection, job: i64, after: u64, limit: usize) -> Answer<Vec<StepRow>> {
    let mut found = Vec::with_capacity(limit);
    let Some(first) = after.checked_add(1) else { return Ok(found) };
    each_block(db, job, first, &mut |columns| {
        let wanted = (0..columns.rows).filter(|row| columns.step(*row) > after);
        found.extend(wanted.map(|row| columns.row(row)));
        found.len() < limit
    })?;
    found.truncate(limit);
    Ok(found)
}

/// Hands the blocks that hold steps `first` on to `each`, in order, until it says false. Rows of the first may lie before.
fn each_block(db: &Connection, job: i64, first: u64, each: &mut dyn FnMut(&Columns<'_>) -> bool) -> Answer<()> {
    let query = "SELECT block, block_checksum, columns FROM overviews LEFT JOIN blocks USING (job, block)
        WHERE job = ? AND block >= ? ORDER BY block";
    let mut query = db.prepare_cached(query)?;
    let mut rows = query.query(params![job, (first / BLOCK) as i64])?;
    while let Some(row) = rows.next()? {
        if !each(&stored(job, row)?) {
            break;
        }
    }
    Ok(())
}

/// Hands one block to `each`.
pub fn block(db: &Connection, job: i64, block: u64, each: &mut dyn FnMut(&Columns<'_>)) -> Answer<()> {
    let query = "SELECT block, block_checksum, columns FROM overviews LEFT JOIN blocks USING (job, block)
        WHERE job = ? AND block = ?";
    let mut query = db.prepare_cached(query)?;
    let mut rows = query.query(params![job, block as i64])?;
    match rows.next()? {
        Some(row) => each(&stored(job, row)?),
        None => return Err(missing(block)),
    }
    Ok(())
}

/// The block of a row, as its overview promises it.
fn stored<'a>(job: i64, row: &'a rusqlite::Row<'_>) -> Answer<Columns<'a>> {
    let block = row.get::<_, i64>(0)? as u64;
    match row.get_ref(2)?.as_blob_or_null().map_err(|e| Failure::Damaged(e.to_string()))? {
        Some(bytes) => columns(job, block, row.get(1)?, bytes),
        None => Err(missing(block)),
    }
}

fn missing(block: u64) -> Failure {
    Failure::Damaged(format!("the steps from {} on are missing", block.saturating_mul(BLOCK)))
}

/// The tally of the blocks that are there, as their overviews tell it.
pub fn tally(db: &Connection, job: i64) -> Answer<Tally> {
    overview::tally(db, job)
}

/// Removes all rows of a job.
pub fn clear(db: &Connection, job: i64) -> Answer<()> {
    db.prepare_cached("DELETE FROM blocks WHERE job = ?")?.execute([job])?;
    overview::clear(db, job)
}
