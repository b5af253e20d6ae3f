//! Table `overviews`: of each block of steps what a picture of a long run needs, in 136 bytes instead of 22 KB. A run of a
//! million steps is half a megabyte here, so its curve is one short read.
//!
//! A row carries its block's checksum and is under its own, so that the tally of a job's blocks needs no look at them.

use super::failure::{Answer, Failure};
use super::steps::StepRow;
use super::tally::{self, Tally};
use rusqlite::{Connection, params};

/// What version 4 added. Nothing older is kept: the run folders are read again.
pub const SCHEMA: &str = "
    DELETE FROM jobs;
    DELETE FROM blocks;
    DELETE FROM evaluations;
    DELETE FROM marks;
    DELETE FROM settings;
    UPDATE totals SET rows = 0, sum = 0;
    CREATE TABLE overviews (
        job INTEGER NOT NULL, block INTEGER NOT NULL, block_checksum INTEGER NOT NULL, numbers BLOB NOT NULL,
        checksum INTEGER NOT NULL, PRIMARY KEY (job, block)) STRICT, WITHOUT ROWID;";

const WORDS: usize = 17;

/// Where a step stands on each axis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stamp {
    /// Its number.
    pub step: u64,
    /// When it was made, milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// Tokens trained on after it.
    pub tokens: u64,
}

/// A block of steps in short.
#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    /// Which.
    pub block: u64,
    /// Steps in it.
    pub rows: u64,
    /// Its first step.
    pub first: Stamp,
    /// Wall time of that one.
    pub first_step_ms: f64,
    /// Its last step.
    pub last: Stamp,
    /// The highest of each: a clock may have been set back.
    pub highest: Stamp,
    /// Loss of the last step.
    pub loss: f64,
    /// Gradient norm of the last step.
    pub grad_norm: f64,
    /// Learning rate of the last step.
    pub learning_rate: f64,
    /// Speed of the last step.
    pub tokens_per_second: f64,
    /// Lowest finite loss; infinite where there is none.
    pub loss_min: f64,
    /// Highest finite loss; minus infinite where there is none.
    pub loss_max: f64,
}

impl Overview {
    /// Of the rows of a block, in order. None for no rows.
    pub fn of(block: u64, rows: &[StepRow]) -> Option<Overview> {
        let stamp = |row: &StepRow| Stamp { step: row.step.step, at_ms: row.at_ms, tokens: row.step.tokens };
        let (first, last) = (rows.first()?, rows.last()?);
        let losses = || rows.iter().map(|row| row.step.loss).filter(|loss| loss.is_finite());
        Some(Overview {
            block,
            rows: rows.len() as u64,
            first: stamp(first),
            first_step_ms: first.step.step_ms,
            last: stamp(last),
            highest: Stamp {
                step: last.step.step,
                at_ms: rows.iter().map(|row| row.at_ms).max()?,
                tokens: rows.iter().map(|row| row.step.tokens).max()?,
            },
            loss: last.step.loss,
            grad_norm: last.step.grad_norm,
            learning_rate: last.step.learning_rate,
            tokens_per_second: last.step.tokens_per_second,
            loss_min: losses().fold(f64::INFINITY, f64::min),
            loss_max: losses().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    fn words(&self) -> [u64; WORDS] {
        let stamp = |stamp: &Stamp| [stamp.step, stamp.at_ms as u64, stamp.tokens];
        let ([a, b, c], [d, e, f], [g, h, i]) = (stamp(&self.first), stamp(&self.last), stamp(&self.highest));
        let numbers = [self.first_step_ms, self.loss, self.grad_norm, self.learning_rate];
        let [j, k, l, m] = numbers.map(f64::to_bits);
        let [n, o, p] = [self.tokens_per_second, self.loss_min, self.loss_max].map(f64::to_bits);
        [self.rows, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }

    fn from_words(block: u64, words: [u64; WORDS]) -> Overview {
        let stamp = |at: usize| Stamp { step: words[at], at_ms: words[at + 1] as i64, tokens: words[at + 2] };
        let number = |at: usize| f64::from_bits(words[at]);
        Overview {
            block,
            rows: words[0],
            first: stamp(1),
            last: stamp(4),
            highest: stamp(7),
            first_step_ms: number(10),
            loss: number(11),
            grad_norm: number(12),
            learning_rate: number(13),
            tokens_per_second: number(14),
            loss_min: number(15),
            loss_max: number(16),
        }
    }

    /// Writes it beside its block.
    pub fn put(&self, db: &Connection, job: i64, block_checksum: i64) -> Answer<()> {
        let numbers = self.words().map(u64::to_le_bytes);
        let numbers = numbers.as_flattened();
        let put = "INSERT OR REPLACE INTO overviews VALUES (?, ?, ?, ?, ?)";
        let checksum = checksum(job, self.block as i64, block_checksum, numbers);
        db.prepare_cached(put)?.execute(params![job, self.block as i64, block_checksum, numbers, checksum])?;
        Ok(())
    }
}

fn checksum(job: i64, block: i64, block_checksum: i64, numbers: &[u8]) -> i64 {
    tally::checksum([job, block, block_checksum, tally::bytes(numbers)])
}

/// Hands the overviews of a job to `each`, in order, with the checksums of their blocks.
fn each_proved(db: &Connection, job: i64, each: &mut dyn FnMut(Overview, i64) -> Answer<()>) -> Answer<()> {
    let query = "SELECT block, block_checksum, numbers, checksum FROM overviews WHERE job = ? ORDER BY block";
    let mut query = db.prepare_cached(query)?;
    let mut rows = query.query([job])?;
    while let Some(row) = rows.next()? {
        let (block, block_checksum): (i64, i64) = (row.get(0)?, row.get(1)?);
        let numbers = row.get_ref(2)?.as_blob().map_err(|e| Failure::Damaged(e.to_string()))?;
        let of = || format!("the overview of block {block}");
        tally::prove(checksum(job, block, block_checksum, numbers), row.get(3)?, of)?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(numbers.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        each(Overview::from_words(block as u64, words), block_checksum)?;
    }
    Ok(())
}

/// Hands the overviews of a job to `each`, in order.
pub fn each(db: &Connection, job: i64, each: &mut dyn FnMut(Overview) -> Answer<()>) -> Answer<()> {
    each_proved(db, job, &mut |overview, _| each(overview))
}

/// The tally of the blocks whose overviews are there.
pub fn tally(db: &Connection, job: i64) -> Answer<Tally> {
    let mut tally = Tally::default();
    each_proved(db, job, &mut |_, checksum| {
        tally.add(checksum);
        Ok(())
    })?;
    Ok(tally)
}

/// Removes all rows of a job.
pub fn clear(db: &Connection, job: i64) -> Answer<()> {
    db.prepare_cached("DELETE FROM overviews WHERE job = ?")?.execute([job])?;
    Ok(())
}
