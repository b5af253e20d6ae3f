//! The one who follows.
//!
//! The offset moves with whole lines only. Whatever follows the last of them, torn or damaged, is read again the next time:
//! the writer may have cut it meanwhile and written something else there.

use super::entry_of;
use crate::disk;
use protocol::{Code, Entry, Outcome, Problem, limits};
use std::fs::File;
use std::io::{self, BufRead};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// Reads a journal from an offset on, also while it grows.
pub struct Reader {
    file: File,
    path: PathBuf,
    /// After the last entry given.
    offset: u64,
    damaged: u64,
    /// Damaged lines since `offset`: they count once a whole line follows, since until then the writer may cut them.
    damaged_since: u64,
    /// Bytes of the file from `base` on; at most a line and a piece.
    buffer: Vec<u8>,
    base: u64,
    /// Position in `buffer` of the next line.
    at: usize,
    /// The next line began before `buffer` and is longer than any of ours.
    overlong: bool,
}

impl Reader {
    /// Opens the journal at `path`; `offset` is 0 or one that [`Reader::next`] gave before.
    /// Errors: `FileUnreadable`; `FileTruncated` where no line starts at `offset` (any more): read from 0 then.
    pub fn open(path: &Path, offset: u64) -> Outcome<Reader> {
        let unreadable = |e: io::Error| Problem::io(&e, "opening a journal", path);
        let file = disk::regular(path).map_err(unreadable)?;
        if offset > 0 && !line_starts_at(&file, offset).map_err(unreadable)? {
            return Err(truncated(path, offset));
        }
        let path = path.to_path_buf();
        let (damaged, damaged_since, buffer, at, overlong) = (0, 0, Vec::new(), 0, false);
        Ok(Reader { file, path, offset, damaged, damaged_since, buffer, base: offset, at, overlong })
    }

    /// The next entry and the offset after it; `None` at the end for now (call again when the file may have grown).
    /// Errors: `DiskFailed`; `FileTruncated` where the file became shorter than what was read.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Outcome<Option<(Entry, u64)>> {
        loop {
            while let Some(length) = line_length(&self.buffer[self.at..]) {
                if let Some(entry) = self.take(length) {
                    return Ok(Some((entry, self.offset)));
                }
            }
            if !self.read_more()? {
                self.rewind();
                return Ok(None);
            }
        }
    }

    /// Offset after the last entry given.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Damaged lines skipped so far.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Takes the next line, `length` bytes and its newline, out of the buffer.
    fn take(&mut self, length: usize) -> Option<Entry> {
        let line = &self.buffer[self.at..self.at + length];
        let entry = if self.overlong { None } else { entry_of(line) };
        (self.at, self.overlong) = (self.at + length + 1, false);
        if entry.is_none() {
            self.damaged_since += 1;
            return None;
        }
        self.offset = self.base + self.at as u64;
        self.damaged += std::mem::take(&mut self.damaged_since);
        entry
    }

    /// Reads one more piece; false at the end of the file.
    fn read_more(&mut self) -> Outcome<bool> {
        if self.buffer.len() - self.at > limits::JOURNAL_LINE_BYTES {
            (self.at, self.overlong) = (self.buffer.len(), true);
        }
        self.buffer.drain(..self.at);
        (self.base, self.at) = (self.base + self.at as u64, 0);
        let have = self.buffer.len();
        self.buffer.resize(have + PIECE_BYTES, 0);
        let got = self.file.read_at(&mut self.buffer[have..], self.base + have as u64);
        self.buffer.truncate(have + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => self.length_still_holds().map(|()| false),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(Problem::io(&error, "reading a journal", &self.path)),
        }
    }

    fn length_still_holds(&self) -> Outcome<()> {
        let status = self.file.metadata().map_err(|e| Problem::io(&e, "reading a journal", &self.path))?;
        if status.len() < self.offset { Err(truncated(&self.path, self.offset)) } else { Ok(()) }
    }

    fn rewind(&mut self) {
        self.buffer.clear();
        (self.base, self.at, self.damaged_since, self.overlong) = (self.offset, 0, 0, false);
    }
}

/// Bytes before the first newline. The standard library searches a word at a time here, and byte by byte in `position`.
fn line_length(mut bytes: &[u8]) -> Option<usize> {
    let whole = bytes;
    let length = bytes.skip_until(b'\n').ok().filter(|&n| n > 0)? - 1;
    (whole[length] == b'\n').then_some(length)
}

fn line_starts_at(file: &File, offset: u64) -> io::Result<bool> {
    let mut before = [0];
    // Compared with the length first: the kernel refuses offsets beyond i64.
    Ok(offset <= file.metadata()?.len() && file.read_at(&mut before, offset - 1)? == 1 && before == [b'\n'])
}

fn truncated(path: &Path, offset: u64) -> Problem {
    Problem::new(Code::FileTruncated, "the journal is not the one that was read before")
        .why(format!("no line starts at byte {offset}"))
        .remedy("read it from its beginning")
        .file(path)
}
