//! Table `settings`: the settings of each job as JSON. They are two thirds of what is known of a job, and only a search that
//! names one opens them, so they lie apart; the job's row holds their checksum.

use super::failure::{Answer, Failure};
use super::jobs::Job;
use super::tally;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;

/// The table, since version 3.
pub const SCHEMA: &str =
    "CREATE TABLE settings (id TEXT NOT NULL PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID;";

/// Writes a job's settings.
pub fn put(db: &Connection, id: &str, text: &str) -> Answer<()> {
    db.prepare_cached("INSERT OR REPLACE INTO settings VALUES (?, ?)")?.execute(params![id, text])?;
    Ok(())
}

/// Removes a job's settings.
pub fn clear(db: &Connection, id: &str) -> Answer<()> {
    db.prepare_cached("DELETE FROM settings WHERE id = ?")?.execute([id])?;
    Ok(())
}

/// Settings that were read, by id, each with the checksum that its job's row had: about 2 KB a job.
#[derive(Clone, Default)]
pub struct Known(HashMap<String, (i64, Box<str>)>);

impl Known {
    /// Reads those of a job unless they are known. Call in the transaction that the job was read in.
    pub fn read(&mut self, moment: &Connection, job: &Job) -> Answer<()> {
        if self.0.get(&job.id).is_some_and(|(checksum, _)| *checksum == job.settings) {
            return Ok(());
        }
        let mut look = moment.prepare_cached("SELECT text FROM settings WHERE id = ?")?;
        let text: Option<String> = look.query_row([&job.id], |row| row.get(0)).optional()?;
        let text = text.filter(|text| tally::text(text) == job.settings);
        let text = text.ok_or_else(|| Failure::Damaged(format!("job {}: other settings", job.id.escape_debug())))?;
        self.0.insert(job.id.clone(), (job.settings, text.into()));
        Ok(())
    }

    /// Those of a job, as JSON; none where they were not read.
    pub fn of(&self, job: &Job) -> &str {
        self.0.get(&job.id).map_or("{}", |(_, text)| text)
    }

    /// Leaves out jobs that are gone.
    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|id, _| is_there(id));
    }
}
