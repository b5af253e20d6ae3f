//! The one who appends.
//!
//! What is not known to be durable stays in memory. A write that failed half-way is repeated at the same place, where the
//! same bytes fall on the same bytes; after a failed fsync the kernel may have dropped what it held, so everything since
//! the last good one is written anew before the next fsync counts. A journal that was deleted or replaced under its writer
//! is still open there: it is copied to its place again, whole, before the next line counts as durable.

use super::entry_of;
use crate::disk::{self, Disk, RealDisk};
use crate::seal;
use protocol::{Code, Entry, Event, Outcome, Problem, limits};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes kept until an fsync succeeds: a second of 10,000 metrics, and what accumulates while a full disk is noticed.
const WAITING_BYTES: usize = 4 << 20;
/// Piece in which a journal is copied.
const COPY_BYTES: usize = 1 << 20;
/// Piece in which a journal is searched backwards; larger than any line.
const WINDOW_BYTES: u64 = 4 * limits::JOURNAL_LINE_BYTES as u64;

/// Appends events to a journal.
pub struct Writer {
    file: Box<dyn Sink>,
    path: PathBuf,
    job: String,
    last: Option<Entry>,
    next: u64,
    cut_bytes: u64,
    /// Length of the file that is durable.
    durable: u64,
    /// What follows it: at most `WAITING_BYTES` and one line.
    waiting: Vec<u8>,
    /// Bytes of `waiting` that are in the file.
    written: usize,
    /// What happened to the file, until it is asked for.
    notice: Option<Problem>,
}

/// The two calls on the file, so that tests can let them fail.
pub(super) trait Sink: Send {
    /// Writes all of `bytes` at `offset`.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// fdatasync.
    fn sync(&mut self) -> io::Result<()>;
    /// Puts the file back where it is not at `path` any more, under a durable name; says what was there instead.
    fn keep_place(&mut self, path: &Path) -> io::Result<Option<Displaced>>;
}

/// How a journal left its place.
pub(super) enum Displaced {
    /// Nothing was there.
    Deleted,
    /// Another file was there, which has been moved here.
    Replaced(PathBuf),
}

impl Sink for File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn keep_place(&mut self, path: &Path) -> io::Result<Option<Displaced>> {
        let own = self.metadata()?;
        let found = match std::fs::symlink_metadata(path) {
            Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => return Ok(None),
            Ok(_) => {
                let aside = path.with_extension("jsonl.replaced");
                std::fs::rename(path, &aside)?;
                Displaced::Replaced(aside)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Displaced::Deleted,
            Err(error) => return Err(error),
        };
        let draft = path.with_extension("jsonl.tmp");
        let mut options = std::fs::OpenOptions::new();
        let copy = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let (mut piece, mut at) = (vec![0; COPY_BYTES], 0);
        loop {
            match self.read_at(&mut piece, at)? {
                0 => break,
                n => copy.write_all_at(&piece[..n], at)?,
            }
            at = copy.metadata()?.len();
        }
        copy.sync_all()?;
        std::fs::rename(&draft, path)?;
        *self = copy;
        RealDisk.sync_folder(path.parent().unwrap_or(Path::new("/")))?;
        Ok(Some(found))
    }
}

impl Writer {
    /// Opens the journal at `path`, making it where it is missing, and cuts its torn tail; `job` goes into each entry. The
    /// caller holds the run's lock.
    /// Errors: `FileMalformed` where the file is no journal; `DiskFull`, `DiskFailed`.
    pub fn open(path: &Path, job: &str) -> Outcome<Writer> {
        let failed = |error: io::Error| disk::failed(&RealDisk, &error, "opening the journal", path, 0);
        let file = open_file(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let (good, last) = match last_entry(&file, length).map_err(failed)? {
            Some((end, entry)) => (end, Some(entry)),
            // A first batch that a power cut tore has no whole line, and no more bytes than wait at most.
            None if length <= WAITING_BYTES as u64 => (0, None),
            None => return Err(no_journal(path)),
        };
        if good < length {
            file.set_len(good).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        let mut writer = Writer::onto(Box::new(file), path, job, last);
        (writer.durable, writer.cut_bytes) = (good, length - good);
        Ok(writer)
    }

    pub(super) fn onto(file: Box<dyn Sink>, path: &Path, job: &str, last: Option<Entry>) -> Writer {
        Writer {
            file,
            path: path.to_path_buf(),
            job: job.to_owned(),
            next: last.as_ref().map_or(1, |entry| entry.sequence + 1),
            last,
            cut_bytes: 0,
            durable: 0,
            waiting: Vec::new(),
            written: 0,
            notice: None,
        }
    }

    /// What happened to the file since the last call, for the user: it was deleted or replaced, and is there again.
    pub fn notice(&mut self) -> Option<Problem> {
        self.notice.take()
    }

    /// Bytes of torn tail that opening cut.
    pub fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    /// The newest entry that opening found; `None` in an empty journal.
    pub fn last(&self) -> Option<&Entry> {
        self.last.as_ref()
    }

    /// Adds an event as the next entry; it is in the file after `flush` and durable after `sync`.
    /// Errors: `TooLarge`, `NotFinite`: the event cannot be journaled; `DiskFull`, `DiskFailed`: 4 MiB wait already and
    /// cannot be written. The event is then not part of the journal.
    pub fn append(&mut self, attempt: u32, at_ms: i64, event: Event) -> Outcome<Entry> {
        if self.waiting.len() >= WAITING_BYTES {
            self.sync()?;
        }
        let entry = Entry { sequence: self.next, attempt, at_ms, job: self.job.clone(), event };
        let start = self.waiting.len();
        if let Err(problem) = self.push(&entry) {
            self.waiting.truncate(start);
            return Err(problem);
        }
        self.next += 1;
        Ok(entry)
    }

    /// Writes what waits in one write(2): readers see it.
    /// Errors: `DiskFull`, `DiskFailed`; everything still waits and the next call tries again.
    pub fn flush(&mut self) -> Outcome<()> {
        if self.written < self.waiting.len() {
            let at = self.durable + self.written as u64;
            self.file.write_at(&self.waiting[self.written..], at).map_err(|error| self.failed(&error))?;
            self.written = self.waiting.len();
        }
        Ok(())
    }

    /// Writes what waits and makes it durable.
    /// Errors: `DiskFull`, `DiskFailed`; everything since the last success is written anew by the next call.
    pub fn sync(&mut self) -> Outcome<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if let Some(found) = self.file.keep_place(&self.path).map_err(|error| self.failed(&error))? {
            self.notice = Some(displaced(&self.path, &found));
        }
        self.flush()?;
        if let Err(error) = self.file.sync() {
            self.written = 0;
            return Err(self.failed(&error));
        }
        self.durable += self.waiting.len() as u64;
        self.waiting.clear();
        self.written = 0;
        Ok(())
    }

    fn push(&mut self, entry: &Entry) -> Outcome<()> {
        let start = self.waiting.len();
        let unfit = |code, what: String| Problem::new(code, what).kept("the journal without this event");
        seal::write(&mut self.waiting, entry)
            .map_err(|e| unfit(Code::Internal, format!("an event cannot be journaled: {e}")))?;
        self.waiting.push(b'\n');
        let line = &self.waiting[start..];
        if line.len() > limits::JOURNAL_LINE_BYTES {
            let what = format!("an event of {} bytes; a line has at most {}", line.len(), limits::JOURNAL_LINE_BYTES);
            return Err(unfit(Code::TooLarge, what));
        }
        // JSON has no NaN: it becomes null, which no reader takes for a number.
        let suspicious = line.windows(5).any(|w| w == b":null");
        if suspicious && entry_of(&line[..line.len() - 1]).is_none() {
            return Err(unfit(Code::NotFinite, "an event with a number that is not finite".into()));
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Problem {
        disk::failed(&RealDisk, error, "writing the journal", &self.path, self.waiting.len() as u64)
            .kept("everything journaled before; what waits is written when there is room")
    }
}

impl Drop for Writer {
    /// Readers shall see what was appended, also when an error elsewhere ends the writer; durable it is after `sync` only.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    let status = file.metadata()?;
    if !status.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if status.len() == 0 {
        // It may be new: its name becomes durable before anything is in it.
        RealDisk.sync_folder(path.parent().unwrap_or(Path::new("/")))?;
    }
    Ok(file)
}

/// The last whole line of a journal and the offset after it. Searched backwards in windows, so that the cost is that of
/// the damage and not of the journal.
fn last_entry(file: &File, length: u64) -> io::Result<Option<(u64, Entry)>> {
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(WINDOW_BYTES);
        let mut window = vec![0; (end - start) as usize];
        file.read_exact_at(&mut window, start)?;
        match last_in(&window, start == 0) {
            Found::Entry(at, entry) => return Ok(Some((start + at as u64, *entry))),
            Found::Before(at) => end = start + at as u64,
        }
    }
    Ok(None)
}

/// What a window of the journal's end holds.
enum Found {
    /// A whole line that ends before this position.
    Entry(usize, Box<Entry>),
    /// None; the search goes on before this position, which is less than the window's length.
    Before(usize),
}

fn last_in(window: &[u8], at_start: bool) -> Found {
    let newline = |bytes: &[u8]| bytes.iter().rposition(|&b| b == b'\n');
    let mut stop = window.len();
    while let Some(end) = newline(&window[..stop]) {
        let start = match newline(&window[..end]) {
            Some(before) => before + 1,
            None if at_start => 0,
            // The line begins before the window: look again with the window ending after it; one that fills the window
            // is longer than any of ours.
            None if end + 1 < window.len() => return Found::Before(end + 1),
            None => return Found::Before(0),
        };
        if let Some(entry) = entry_of(&window[start..end]) {
            return Found::Entry(end + 1, Box::new(entry));
        }
        stop = start;
    }
    Found::Before(0)
}

fn displaced(path: &Path, found: &Displaced) -> Problem {
    let kept = "every line: the journal was copied back to its place";
    let (what, kept) = match found {
        Displaced::Deleted => ("the journal was deleted while the job ran", kept.to_owned()),
        Displaced::Replaced(aside) => {
            ("the journal was replaced while the job ran", format!("{kept}; the other file is {}", aside.display()))
        }
    };
    Problem::new(Code::FileMalformed, what)
        .why("its writer found another file, or none, under its name")
        .file(path)
        .kept(kept)
        .remedy("leave journal.jsonl alone while a job runs: its history is made from it")
}

fn no_journal(path: &Path) -> Problem {
    Problem::new(Code::FileMalformed, "this file is no journal, or all of it is damaged")
        .why("not one line in it has a right checksum")
        .kept("the file as it is")
        .remedy("move it away; the job then goes on with a new journal")
        .file(path)
}
