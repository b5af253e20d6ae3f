//! The one who appends.

use protocol::{Entry, Event, Outcome};
use std::path::Path;

/// Appends events to a journal.
pub struct Writer {}

impl Writer {
    /// Opens the journal at `path`, making it where it is missing, and cuts its torn tail; `job` goes into each entry.
    /// Errors: `FileMalformed` where the file is no journal; `DiskFull`, `DiskFailed`.
    pub fn open(path: &Path, job: &str) -> Outcome<Writer> {
        let _ = (path, job);
        todo!()
    }

    /// Bytes of torn tail that opening cut.
    pub fn cut_bytes(&self) -> u64 {
        todo!()
    }

    /// The newest entry that opening found; `None` in an empty journal.
    pub fn last(&self) -> Option<&Entry> {
        todo!()
    }

    /// Adds an event as the next entry; it is in the file after `flush` and durable after `sync`.
    /// Errors: `TooLarge`, `NotFinite`: the event cannot be journaled; `DiskFull`, `DiskFailed`: 4 MiB wait already and
    /// cannot be written. The event is then not part of the journal.
    pub fn append(&mut self, attempt: u32, at_ms: i64, event: Event) -> Outcome<Entry> {
        let _ = (attempt, at_ms, event);
        todo!()
    }

    /// Writes what waits in one write(2): readers see it.
    /// Errors: `DiskFull`, `DiskFailed`; everything still waits and the next call tries again.
    pub fn flush(&mut self) -> Outcome<()> {
        todo!()
    }

    /// Writes what waits and makes it durable.
    /// Errors: `DiskFull`, `DiskFailed`; everything since the last success is written anew by the next call.
    pub fn sync(&mut self) -> Outcome<()> {
        todo!()
    }
}
