//! All jobs in memory, so that a page of ten thousand costs a sort and no reading. What is held is proved against the file
//! each time it is asked: one row tells how often any job changed, and what all of them sum up to.
//!
//! A job takes about 3 KB here, most of it settings.

use super::failure::{Answer, Failure};
use super::jobs::{self, Job};
use super::tally::Tally;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// The jobs, as they were at the last `refresh`.
#[derive(Default)]
pub struct JobList {
    jobs: BTreeMap<String, Job>,
    tally: Tally,
    /// Count of changes up to which they were read.
    changes: Option<i64>,
}

impl JobList {
    /// Takes over what changed in the file.
    pub fn refresh(&mut self, db: &Connection) -> Answer<()> {
        // One moment: both the rows and what they sum up to.
        let moment = db.unchecked_transaction()?;
        let (totals, changes) = jobs::totals(&moment)?;
        if self.changes == Some(changes) && self.tally == totals {
            return Ok(());
        }
        if let Some(before) = self.changes.take() {
            self.take(&moment, before)?;
        }
        if self.tally != totals || self.jobs.is_empty() {
            // The first time, or another engine removed one; or what is there is not what was written.
            *self = JobList::default();
            self.take(&moment, -1)?;
        }
        if self.tally != totals {
            let listed = self.jobs.len();
            *self = JobList::default();
            return Err(Failure::Damaged(format!(
                "{listed} jobs are listed, and they are not those that were written"
            )));
        }
        self.changes = Some(changes);
        Ok(())
    }

    fn take(&mut self, db: &Connection, after: i64) -> Answer<()> {
        jobs::changed_after(db, after, &mut |job| {
            self.tally.add(job.checksum);
            if let Some(before) = self.jobs.insert(job.id.clone(), job) {
                self.tally.remove(before.checksum);
            }
        })
    }

    /// Leaves a job out that this engine has removed from the file.
    pub fn forget(&mut self, id: &str) {
        if let Some(job) = self.jobs.remove(id) {
            self.tally.remove(job.checksum);
        }
    }

    /// A job by its full id.
    pub fn get(&self, id: &str) -> Option<&Job> {
        self.jobs.get(id)
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.jobs.values()
    }

    /// Ids that begin so, three at most.
    pub fn beginning_with(&self, beginning: &str) -> Vec<String> {
        let from = self.jobs.range(beginning.to_owned()..).map(|(id, _)| id);
        from.take_while(|id| id.starts_with(beginning)).take(3).cloned().collect()
    }
}
