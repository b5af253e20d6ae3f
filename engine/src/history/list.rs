//! All jobs in memory, so that a page of ten thousand costs a sort and no reading. What is held is proved against the file
//! each time it is asked: one row tells how often any job changed, and what all of them sum up to.
//!
//! A job takes about 1 KB here; 2 KB of settings come to it once a search has asked for one.

use super::failure::{Answer, Failure};
use super::jobs::{self, Job};
use super::settings::Known;
use super::tally::Tally;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The jobs, as they were at the last `refresh`.
#[derive(Clone, Default)]
pub struct JobList {
    /// Shared with the lists that were made of this one.
    jobs: BTreeMap<String, Arc<Job>>,
    tally: Tally,
    /// Count of changes up to which they were read.
    changes: Option<i64>,
    settings: Known,
}

impl JobList {
    /// Takes over what changed in the file.
    pub fn refresh(&mut self, db: &Connection) -> Answer<()> {
        // One moment: both the rows and what they sum up to.
        let moment = db.unchecked_transaction()?;
        self.bring_up(&moment)
    }

    /// The same, with the settings of all jobs.
    pub fn refresh_with_settings(&mut self, db: &Connection) -> Answer<()> {
        let moment = db.unchecked_transaction()?;
        self.bring_up(&moment)?;
        let JobList { jobs, settings, .. } = self;
        settings.keep(|id| jobs.contains_key(id));
        jobs.values().try_for_each(|job| settings.read(&moment, job))
    }

    fn bring_up(&mut self, moment: &Connection) -> Answer<()> {
        let (totals, changes) = jobs::totals(moment)?;
        if self.changes == Some(changes) && self.tally == totals {
            return Ok(());
        }
        if let Some(before) = self.changes.take() {
            self.take(moment, before)?;
        }
        if self.tally != totals || self.jobs.is_empty() {
            // The first time, or another engine removed one; or what is there is not what was written.
            self.clear();
            self.take(moment, -1)?;
        }
        if self.tally != totals {
            let listed = self.jobs.len();
            self.clear();
            return Err(Failure::Damaged(format!(
                "{listed} jobs are listed, and they are not those that were written"
            )));
        }
        self.changes = Some(changes);
        Ok(())
    }

    fn clear(&mut self) {
        *self = JobList { settings: std::mem::take(&mut self.settings), ..JobList::default() };
    }

    fn take(&mut self, db: &Connection, after: i64) -> Answer<()> {
        jobs::changed_after(db, after, &mut |job| {
            self.tally.add(job.checksum);
            if let Some(before) = self.jobs.insert(job.id.clone(), Arc::new(job)) {
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

    /// The settings of a job under their dotted keys, as JSON; none where no search has asked for them.
    pub fn settings(&self, job: &Job) -> &str {
        self.settings.of(job)
    }

    /// A job by its full id.
    pub fn get(&self, id: &str) -> Option<&Job> {
        self.jobs.get(id).map(Arc::as_ref)
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.jobs.values().map(Arc::as_ref)
    }

    /// Ids that begin so, three at most.
    pub fn beginning_with(&self, beginning: &str) -> Vec<String> {
        let from = self.jobs.range(beginning.to_owned()..).map(|(id, _)| id);
        from.take_while(|id| id.starts_with(beginning)).take(3).cloned().collect()
    }
}
