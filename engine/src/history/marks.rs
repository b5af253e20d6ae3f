//! Table `marks`: what happened in a job besides steps and evaluations, one row an event.

use super::failure::{Answer, Failure};
use super::tally::{self, Tally};
use protocol::{Entry, Event, Problem};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// The table, since version 2. `weight` is 0 for what matters most.
pub const SCHEMA: &str = "
    CREATE TABLE marks (
        job INTEGER NOT NULL, sequence INTEGER NOT NULL, at_ms INTEGER NOT NULL, weight INTEGER NOT NULL, event TEXT NOT NULL,
        checksum INTEGER NOT NULL, PRIMARY KEY (job, sequence)) STRICT, WITHOUT ROWID;";

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkRow {
    /// Sequence of the journal's entry.
    pub sequence: u64,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// What happened.
    pub event: Event,
}

/// Which events stay where not all can be shown; `None` for those that have a table of their own.
fn weight(event: &Event) -> Option<i64> {
    use Event::*;
    Some(match event {
        Step(_) | Evaluation { .. } => return None,
        Failed { .. } | Interrupted { .. } | Finished { .. } | Stopped { .. } | Rewound { .. } | Restarted { .. } => 0,
        Queued { .. } | Started { .. } | Paused { .. } | Resumed { .. } | Stopping { .. } => 1,
        Warning { .. } | Skipped { .. } => 2,
        Checkpoint { .. } => 3,
        Snapshot { .. } => 4,
    })
}

/// Writes the row of an entry that is neither step nor evaluation.
pub fn put(db: &Connection, job: i64, entry: &Entry, tally: &mut Tally) -> Answer<()> {
    let Some(weight) = weight(&entry.event) else { return Ok(()) };
    let event = serde_json::to_string(&entry.event)
        .map_err(|e| Problem::internal(format!("an event cannot be written as JSON: {e}")))?;
    let checksum = checksum(job, entry.sequence, entry.at_ms, weight, &event);
    let mut look = db.prepare_cached("SELECT checksum FROM marks WHERE job = ? AND sequence = ?")?;
    let present = look.query_row(params![job, entry.sequence as i64], |r| r.get(0)).optional()?;
    present.into_iter().for_each(|checksum| tally.remove(checksum));
    let put = "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?, ?, ?)";
    db.prepare_cached(put)?.execute(params![job, entry.sequence as i64, entry.at_ms, weight, event, checksum])?;
    tally.add(checksum);
    Ok(())
}

fn checksum(job: i64, sequence: u64, at_ms: i64, weight: i64, event: &str) -> i64 {
    tally::checksum([job, sequence as i64, at_ms, weight, tally::text(event)])
}

/// At most `limit` marks of a job that are `wanted`, in order: those that matter most, and of these the newest.
pub fn foremost(db: &Connection, job: i64, limit: usize, wanted: &dyn Fn(&MarkRow) -> bool) -> Answer<Vec<MarkRow>> {
    let query =
        "SELECT sequence, at_ms, weight, event, checksum FROM marks WHERE job = ? ORDER BY weight, sequence DESC";
    let mut query = db.prepare_cached(query)?;
    let mut rows = query.query([job])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()?.filter(|_| found.len() < limit) {
        found.extend(Some(read(row, job)?).filter(wanted));
    }
    found.sort_unstable_by_key(|mark| mark.sequence);
    Ok(found)
}

fn read(row: &Row<'_>, job: i64) -> Answer<MarkRow> {
    let (sequence, at_ms, event) = (row.get::<_, i64>(0)? as u64, row.get(1)?, row.get::<_, String>(3)?);
    let damaged = |what: &str| Failure::Damaged(format!("entry {sequence}: {what}"));
    if checksum(job, sequence, at_ms, row.get(2)?, &event) != row.get::<_, i64>(4)? {
        return Err(damaged("wrong checksum"));
    }
    let event = serde_json::from_str(&event).map_err(|e| damaged(&e.to_string()))?;
    Ok(MarkRow { sequence, at_ms, event })
}

/// The tally of the rows that are really there.
pub fn tally(db: &Connection, job: i64) -> Answer<Tally> {
    tally::of(db, "SELECT checksum FROM marks WHERE job = ?", job)
}

/// Removes all rows of a job.
pub fn clear(db: &Connection, job: i64) -> Answer<()> {
    db.prepare_cached("DELETE FROM marks WHERE job = ?")?.execute([job])?;
    Ok(())
}
