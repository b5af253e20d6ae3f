//! Places in a data set, so that any row is found again without reading all that lie before it.
//!
//! Not here: how a file is read (`stream`), what a row says (`layout`).

use super::Records;
use super::stream::{At, Source};
use protocol::Outcome;

/// Where a row begins.
#[derive(Clone, Debug)]
pub struct Mark {
    file: usize,
    row: u64,
    bytes_before: u64,
    /// Rows of its file before it.
    rows: u64,
    at: Option<At>,
}

impl Records {
    /// Where the next row begins.
    pub fn mark(&self) -> Mark {
        let at = self.source.as_ref().and_then(Source::at);
        Mark { file: self.file, row: self.row, bytes_before: self.bytes_before, rows: self.rows_of_file, at }
    }

    /// Goes to a place of the same files. In containers without places of their own the rows before it are passed over.
    pub fn go_to(&mut self, mark: &Mark) -> Outcome<()> {
        self.skipped.clear();
        self.failed = false;
        self.file = mark.file;
        self.bytes_before = mark.bytes_before;
        self.source = None;
        let Some(file) = self.meaning.files.get(mark.file) else {
            self.row = mark.row;
            return Ok(());
        };
        let mut source = Source::open(&file.path, &self.meaning.kinds[mark.file])?;
        if !mark.at.as_ref().is_some_and(|at| source.go_to(at)) {
            for _ in 0..mark.rows {
                source.next()?;
            }
        }
        self.source = Some(source);
        self.rows_of_file = mark.rows;
        self.row = mark.row;
        Ok(())
    }

    /// Passes over a row without looking at it; false where there is none.
    pub fn pass(&mut self) -> Outcome<bool> {
        let passed = self.next_raw()?.is_some();
        self.row += u64::from(passed);
        Ok(passed)
    }
}
