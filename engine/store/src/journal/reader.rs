//! The one who follows.

use protocol::{Entry, Outcome};
use std::path::Path;

/// Reads a journal from an offset on, also while it grows.
pub struct Reader {}

impl Reader {
    /// Opens the journal at `path`; `offset` is 0 or one that [`Reader::next`] gave before.
    /// Errors: `FileUnreadable`; `FileTruncated` where no line starts at `offset` (any more): read from 0 then.
    pub fn open(path: &Path, offset: u64) -> Outcome<Reader> {
        let _ = (path, offset);
        todo!()
    }

    /// The next entry and the offset after it; `None` at the end for now (call again when the file may have grown).
    /// Errors: `DiskFailed`; `FileTruncated` where the file became shorter than what was read.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Outcome<Option<(Entry, u64)>> {
        todo!()
    }

    /// Offset after the last entry given.
    pub fn offset(&self) -> u64 {
        todo!()
    }

    /// Damaged lines skipped so far.
    pub fn damaged(&self) -> u64 {
        todo!()
    }
}
