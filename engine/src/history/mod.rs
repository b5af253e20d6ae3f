//! The history: what every job was, did and became, answered from `HOME/history.sqlite3`.
//!
//! The file is an index. Everything in it is derived from the run folders, so a lost or damaged file is built again and
//! gives the same answers.

use protocol::record::{CheckpointRow, Comparison, JobRecord, JobRow, MetricRow};
use protocol::{Outcome, Problem};
use std::path::Path;

/// The open history of one HOME. Several may be open at once, in one process or many.
pub struct History {}

impl History {
    /// Opens (or creates, migrates, rebuilds) `home/history.sqlite3`, ingests what the run folders hold, and frees trash
    /// whose time is over. The problems are notices for the user: the history works all the same.
    /// Errors: `HistoryNewer`, `HistoryFailed`, `DiskFull`, `Busy`.
    pub fn open(home: &Path) -> Outcome<(History, Vec<Problem>)> {
        let _ = home;
        todo!()
    }

    /// Reads what run folders have gained since the last time, from this engine or another. Returns notices.
    /// Errors as in `open`; whatever fails, no row is lost or doubled, and the next call goes on.
    pub fn ingest(&mut self) -> Outcome<Vec<Problem>> {
        todo!()
    }

    /// All jobs, newest first; those only that match every word of `search` (see `search.rs`).
    pub fn jobs(&mut self, search: Option<&str>) -> Outcome<Vec<JobRow>> {
        let _ = search;
        todo!()
    }

    /// The full id of a job, from its id or any beginning of it that only one job has. Errors: `NotFound`.
    pub fn find(&mut self, id: &str) -> Outcome<String> {
        let _ = id;
        todo!()
    }

    /// One job in full. Errors: `NotFound`, or what is wrong with its run folder.
    pub fn job(&mut self, id: &str) -> Outcome<JobRecord> {
        let _ = id;
        todo!()
    }

    /// Hands every step of a job to `each`, in order, in bounded memory. Stops at the first error of `each`.
    pub fn metrics(&mut self, id: &str, each: &mut dyn FnMut(&MetricRow) -> Outcome<()>) -> Outcome<()> {
        let _ = (id, each);
        todo!()
    }

    /// Two jobs side by side: only what differs, and both curves.
    pub fn compare(&mut self, a: &str, b: &str) -> Outcome<Comparison> {
        let _ = (a, b);
        todo!()
    }

    /// Checkpoints of a job on disk; with `verify` every checksum is compared.
    pub fn checkpoints(&mut self, id: &str, verify: bool) -> Outcome<Vec<CheckpointRow>> {
        let _ = (id, verify);
        todo!()
    }

    /// Moves a job that is not alive to the trash. Errors: `NotFound`, `WrongState`.
    pub fn delete(&mut self, id: &str) -> Outcome<()> {
        let _ = id;
        todo!()
    }

    /// Takes a job out of the trash. Errors: `NotFound`.
    pub fn restore(&mut self, id: &str) -> Outcome<()> {
        let _ = id;
        todo!()
    }

    /// Frees a job in the trash now (`delete --now`). Errors: `NotFound`.
    pub fn free(&mut self, id: &str) -> Outcome<()> {
        let _ = id;
        todo!()
    }
}
