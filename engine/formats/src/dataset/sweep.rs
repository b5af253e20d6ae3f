//! JSON lines looked at by all cores: the file is cut into blocks of whole lines, each is looked at by itself, and what was
//! found is put together in the order of the file.
//!
//! Not here: what is told of a data set (`facts`), other containers, whose rows are looked at one after the other.

use super::layout::{Bad, Layout, Quick, Reading, add_columns, parse};
use super::rules::Rules;
use super::{COLUMNS, excerpt};
use crate::folder;
use protocol::{Code, Outcome, Problem, limits};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of a block: thousands of rows, and little beside all that is read.
const BLOCK: usize = 1 << 20;
/// Most threads: each has a stack and a heap of its own, and more of them would wait for the disk.
const THREADS: usize = 4;

/// What is the same for all rows.
pub(super) struct Sweep<'a> {
    pub layout: &'a Layout,
    pub rules: &'a Rules,
    /// Columns met so far, in their order.
    pub columns: &'a [String],
}

/// What a block holds.
#[derive(Default)]
pub(super) struct Swept {
    /// Bytes, and lines.
    pub bytes: u64,
    pub lines: u64,
    /// Rows, and those that can be used.
    pub rows: u64,
    pub usable: u64,
    /// Columns in the order in which they are met, those that were known first.
    pub columns: Vec<String>,
    /// What each usable row says.
    pub hashes: Vec<u128>,
    /// The first rows with something wrong, at least one of each kind.
    pub found: Vec<Found>,
    /// All of them.
    pub counts: BTreeMap<(Code, bool), u64>,
}

/// A row with something wrong.
pub(super) struct Found {
    /// Row in the block, from 1.
    pub row: u64,
    /// Line in the block, from 0.
    pub line: u64,
    pub bad: Bad,
    /// Its beginning.
    pub text: String,
    /// It was converted, as the job says.
    pub converted: bool,
}

/// How a sweep ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All of the file was looked at.
    Whole,
    /// As much as was asked for.
    Enough,
}

/// A part of the file.
enum Piece {
    /// Whole lines.
    Lines(Vec<u8>),
    /// A line that is too long to be kept: its bytes.
    TooLong(u64),
}

/// Pieces on their way, numbered.
type Pieces = Mutex<Receiver<(usize, Piece)>>;

impl Sweep<'_> {
    /// Looks at a file of JSON lines and tells each block in order. At most about `most` bytes are read.
    pub fn file(&self, path: &Path, most: u64, mut tell: impl FnMut(Swept) -> Outcome<()>) -> Outcome<Ended> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(THREADS);
        let (pieces, waiting) = sync_channel(2 * threads);
        let waiting: Pieces = Mutex::new(waiting);
        // Answers are few and small; a bound here could let blocks and answers wait for each other.
        let (answers, answered) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (waiting, answers) = (&waiting, answers.clone());
                scope.spawn(move || {
                    let mut quick = Quick::of(self.layout, self.rules.has_roles());
                    if let Some(quick) = &mut quick {
                        quick.learn(self.columns);
                    }
                    while let Some((at, piece)) = next(waiting) {
                        if answers.send((at, self.piece(&piece, &mut quick))).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(answers);
            let reader = scope.spawn(move || read(path, most, &pieces));
            let mut early = BTreeMap::new();
            let mut due = 0;
            for (at, swept) in answered {
                early.insert(at, swept);
                while let Some(swept) = early.remove(&due) {
                    due += 1;
                    tell(swept)?;
                }
            }
            reader.join().unwrap_or_else(|_| Err(Problem::internal("reading ended in the middle")))
        })
    }

    fn piece(&self, piece: &Piece, quick: &mut Option<Quick>) -> Swept {
        let mut swept = Swept { columns: self.columns.to_vec(), ..Swept::default() };
        let block = match piece {
            Piece::Lines(block) => block,
            Piece::TooLong(bytes) => {
                (swept.bytes, swept.lines, swept.rows) = (*bytes, 1, 1);
                swept.wrong(0, too_long(), &[], false);
                return swept;
            }
        };
        swept.bytes = block.len() as u64;
        for line in lines(block) {
            let at = swept.lines;
            swept.lines += 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            swept.rows += 1;
            match line.len() > limits::RECORD_BYTES {
                true => swept.wrong(at, too_long(), &[], false),
                false => self.row(line, at, quick, &mut swept),
            }
        }
        swept
    }

    fn row(&self, line: &[u8], at: u64, quick: &mut Option<Quick>, swept: &mut Swept) {
        let plain = match (quick.as_ref(), std::str::from_utf8(line)) {
            (Some(quick), Ok(text)) => quick.is_plain(text),
            _ => false,
        };
        if !plain {
            let told = self.look(line, &mut swept.columns);
            if let Some(quick) = quick {
                quick.learn(&swept.columns);
            }
            match told {
                Ok(converted) => converted.into_iter().for_each(|bad| swept.wrong(at, bad, line, true)),
                Err(bad) => return swept.wrong(at, bad, line, false),
            }
        }
        swept.usable += 1;
        swept.hashes.push(xxh3_128(line.trim_ascii()));
    }

    /// The full look at a row: what was converted, or why it is no record.
    fn look(&self, line: &[u8], columns: &mut Vec<String>) -> Result<Vec<Bad>, Bad> {
        let mut reading = Reading::new(self.rules);
        let text = super::meaning::text_of(line, 0, None, &mut reading)?;
        let row = parse(&text)?;
        add_columns(&row, columns, COLUMNS)?;
        self.layout.content(&row, &mut reading)?;
        Ok(reading.converted)
    }
}

impl Swept {
    fn wrong(&mut self, line: u64, bad: Bad, bytes: &[u8], converted: bool) {
        let count = self.counts.entry((bad.0, converted)).or_default();
        *count += 1;
        if *count == 1 || self.found.len() < limits::LISTED_ROW_PROBLEMS {
            let text = excerpt::excerpt(bytes);
            self.found.push(Found { row: self.rows, line, bad, text, converted });
        }
    }
}

/// Lines of a block without their ends.
fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let block = block.strip_suffix(b"\n").unwrap_or(block);
    let mut from = (!block.is_empty()).then_some(0);
    let mut ends = memchr::memchr_iter(b'\n', block);
    std::iter::from_fn(move || {
        let start = from?;
        let end = ends.next();
        from = end.map(|end| end + 1);
        let line = &block[start..end.unwrap_or(block.len())];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    })
}

fn next(waiting: &Pieces) -> Option<(usize, Piece)> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Cuts a file into pieces.
fn read(path: &Path, most: u64, pieces: &SyncSender<(usize, Piece)>) -> Outcome<Ended> {
    let mut file = folder::open(path)?;
    let (mut rest, mut sent, mut bytes) = (Vec::new(), 0, 0u64);
    if !take(&mut file, super::sniff::BOM.len(), &mut rest, path)? && rest.is_empty() {
        return Ok(Ended::Whole);
    }
    if rest == super::sniff::BOM {
        rest.clear();
    }
    let mut long = 0u64;
    loop {
        let more = take(&mut file, BLOCK, &mut rest, path)?;
        let end = if more { memchr::memrchr(b'\n', &rest).map(|at| at + 1) } else { Some(rest.len()) };
        let Some(end) = end else {
            // What is longer than a record is passed over; only its length is kept.
            if long > 0 || rest.len() > limits::RECORD_BYTES {
                long += std::mem::take(&mut rest).len() as u64;
            }
            continue;
        };
        let mut sending = Vec::new();
        if long > 0 {
            let first = memchr::memchr(b'\n', &rest).map_or(rest.len(), |at| at + 1);
            sending.push(Piece::TooLong(long + rest.drain(..first).len() as u64));
            sending.push(Piece::Lines(rest.drain(..end - first).collect()));
            long = 0;
        } else {
            let next = rest.split_off(end);
            sending.push(Piece::Lines(std::mem::replace(&mut rest, next)));
        }
        for piece in sending {
            bytes += piece.bytes();
            if pieces.send((sent, piece)).is_err() {
                // Nobody waits any more.
                return Ok(Ended::Enough);
            }
            sent += 1;
        }
        match more {
            false => return Ok(Ended::Whole),
            true if bytes >= most => return Ok(Ended::Enough),
            true => {}
        }
    }
}

impl Piece {
    fn bytes(&self) -> u64 {
        match self {
            Piece::Lines(block) => block.len() as u64,
            Piece::TooLong(bytes) => *bytes,
        }
    }
}

fn too_long() -> Bad {
    (Code::TooLarge, format!("too large: a record has at most {} bytes", limits::RECORD_BYTES))
}

/// Reads so many bytes more; false at the end of the file.
fn take(file: &mut File, bytes: usize, to: &mut Vec<u8>, path: &Path) -> Outcome<bool> {
    to.reserve(bytes);
    let n = file.take(bytes as u64).read_to_end(to).map_err(|e| Problem::io(&e, "reading the data", path))?;
    Ok(n == bytes)
}
