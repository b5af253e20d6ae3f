//! Checksums of rows, and order-free tallies of sets of rows.
//!
//! SQLite notices damaged pages, not a damaged number inside an intact page, nor a row that a damaged index hides. So each
//! row carries a checksum over its values, and the row above carries count and sum of the checksums below it.

use super::failure::{Answer, Failure};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Checksum of a row's values, XXH3-64.
pub fn checksum<const N: usize>(values: [i64; N]) -> i64 {
    bytes(values.map(i64::to_le_bytes).as_flattened())
}

/// Holds a row read against the checksum beside it. Errors: damage, `of` naming the row.
pub fn prove(checksum: i64, stored: i64, of: impl FnOnce() -> String) -> Answer<()> {
    if checksum == stored {
        return Ok(());
    }
    Err(Failure::Damaged(format!("{} has a wrong checksum", of())))
}

/// A text as one value of a row.
pub fn text(text: &str) -> i64 {
    bytes(text.as_bytes())
}

/// Bytes as one value of a row.
pub fn bytes(bytes: &[u8]) -> i64 {
    xxh3_64(bytes) as i64
}

/// A number as one value of a row: its bits.
pub fn bits(number: f64) -> i64 {
    number.to_bits() as i64
}

/// Count and sum of the checksums of a set of rows. The sum wraps, so rows may come and go in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Rows.
    pub rows: i64,
    /// Wrapping sum of their checksums.
    pub sum: i64,
}

impl Tally {
    /// A row came.
    pub fn add(&mut self, checksum: i64) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(checksum);
    }

    /// A row went.
    pub fn remove(&mut self, checksum: i64) {
        self.rows -= 1;
        self.sum = self.sum.wrapping_sub(checksum);
    }
}

/// The tally of the checksums that `query` finds for a job.
pub fn of(db: &Connection, query: &str, job: i64) -> Answer<Tally> {
    let mut query = db.prepare_cached(query)?;
    let mut rows = query.query([job])?;
    let mut tally = Tally::default();
    while let Some(row) = rows.next()? {
        tally.add(row.get(0)?);
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_missing_or_doubled_row_changes_the_tally() {
        let of = |rows: &[i64]| {
            let mut tally = Tally::default();
            rows.iter().for_each(|r| tally.add(checksum([*r, bits(0.5), text("a")])));
            tally
        };
        assert_eq!(of(&[1, 2, 3]), of(&[3, 1, 2]));
        for other in [&[1, 2, 4][..], &[1, 2], &[1, 2, 2], &[1, 2, 3, 3]] {
            assert_ne!(of(&[1, 2, 3]), of(other));
        }
    }

    #[test]
    fn a_row_that_came_and_went_leaves_no_trace() {
        let mut tally = Tally::default();
        tally.add(i64::MAX);
        let before = tally;
        tally.add(7);
        tally.remove(7);
        assert_eq!(tally, before);
    }
}
