//! What a trainer prints: `trainer.log`, bounded and rotated, as text that no terminal can be harmed with.
//!
//! A thread empties the pipe whatever comes, so a trainer never waits for its own output, not even on a full disk.

use std::fs::{File, OpenOptions, rename};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Most bytes of one file; a job keeps five of them: trainer.log and trainer.log.1 (newer) to trainer.log.4 (oldest).
const FILE_BYTES: u64 = 50 * 1024 * 1024;
const OLDER_FILES: u32 = 4;
/// A line is broken after this many bytes: editors and screens take it, a 10 MB line they do not.
const LINE_BYTES: usize = 8 * 1024;
/// Text kept for `tail`: twenty of the longest lines.
const RECENT_BYTES: usize = 20 * LINE_BYTES;
/// Lines that a message about a dead trainer quotes, and how many characters of each: with quoting they fit a message.
const TAIL_LINES: usize = 20;
const TAIL_CHARS: usize = 400;

/// The log of one job.
#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
    file_bytes: u64,
    recent: Arc<Mutex<Vec<u8>>>,
}

impl Log {
    /// A log that appends to `path`.
    pub fn new(path: &Path) -> Log {
        Log { path: path.to_owned(), file_bytes: FILE_BYTES, recent: Arc::default() }
    }

    /// Empties a pipe into the log on a thread, until every writer has closed it.
    pub fn attach(&self, pipe: OwnedFd) -> std::io::Result<JoinHandle<()>> {
        let log = self.clone();
        log.recent().clear();
        std::thread::Builder::new().name("anneal-log".into()).spawn(move || log.empty(File::from(pipe)))
    }

    /// Adds a line of the supervisor's own. It is no word of a trainer, so `tail` does not have it.
    pub fn note(&self, line: &str) {
        Rotated::open(&self.path, self.file_bytes).write(format!("supervisor: {line}\n").as_bytes());
    }

    /// The last lines of the newest trainer.
    pub fn tail(&self) -> Vec<String> {
        let recent = self.recent();
        let text = String::from_utf8_lossy(&recent);
        let mut lines: Vec<String> =
            text.lines().rev().take(TAIL_LINES).map(|line| line.chars().take(TAIL_CHARS).collect()).collect();
        lines.reverse();
        lines
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        // A poisoned list is still text.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn empty(&self, mut pipe: impl Read) {
        let mut file = Rotated::open(&self.path, self.file_bytes);
        let (mut cleaner, mut raw, mut text) = (Cleaner::default(), vec![0; 64 * 1024], Vec::new());
        loop {
            let n = match pipe.read(&mut raw) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            text.clear();
            cleaner.clean(&raw[..n], &mut text);
            self.keep(&text);
            file.write(&text);
        }
        text.clear();
        cleaner.end(&mut text);
        self.keep(&text);
        file.write(&text);
    }

    fn keep(&self, text: &[u8]) {
        let mut recent = self.recent();
        recent.extend_from_slice(text);
        if recent.len() > 2 * RECENT_BYTES {
            let surplus = recent.len() - RECENT_BYTES;
            recent.drain(..surplus);
        }
    }
}

/// The last lines of a pipe, read to its end and kept nowhere.
pub fn tail_of(pipe: impl Read) -> Vec<String> {
    let log = Log::new(Path::new(""));
    log.empty(pipe);
    log.tail()
}

/// A file that gives way to a new one when it is full.
struct Rotated {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
    limit: u64,
}

impl Rotated {
    fn open(path: &Path, limit: u64) -> Rotated {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).ok();
        let bytes = file.as_ref().and_then(|f| f.metadata().ok()).map_or(0, |m| m.len());
        Rotated { path: path.to_owned(), file, bytes, limit }
    }

    /// What cannot be written is lost: output of a trainer is worth less than its going on.
    fn write(&mut self, text: &[u8]) {
        if self.bytes > 0 && self.bytes + text.len() as u64 > self.limit {
            self.rotate();
        }
        if let Some(file) = &mut self.file
            && file.write_all(text).is_ok()
        {
            self.bytes += text.len() as u64;
        }
    }

    fn rotate(&mut self) {
        for older in (1..OLDER_FILES).rev() {
            let _ = rename(self.numbered(older), self.numbered(older + 1));
        }
        let _ = rename(&self.path, self.numbered(1));
        *self = Rotated::open(&self.path, self.limit);
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// Turns any bytes into lines of UTF-8 without control characters; what a terminal would obey is spelt out instead.
#[derive(Default)]
struct Cleaner {
    column: usize,
    after_return: bool,
    /// A character whose last bytes have not come yet: at most three.
    torn: Vec<u8>,
}

impl Cleaner {
    fn clean(&mut self, raw: &[u8], out: &mut Vec<u8>) {
        let joined;
        let mut raw = raw;
        if !self.torn.is_empty() {
            joined = [&self.torn[..], raw].concat();
            raw = &joined;
        }
        let torn = raw.len() - torn_bytes(raw);
        self.torn = raw[torn..].to_vec();
        for chunk in raw[..torn].utf8_chunks() {
            self.text(chunk.valid(), out);
            for byte in chunk.invalid() {
                self.put(&hex(*byte), out);
            }
        }
    }

    /// The rest, with the last line ended.
    fn end(&mut self, out: &mut Vec<u8>) {
        for byte in std::mem::take(&mut self.torn) {
            self.put(&hex(byte), out);
        }
        if self.column > 0 {
            self.new_line(out);
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        let mut rest = text;
        while !rest.is_empty() {
            let plain = rest.bytes().take_while(|b| matches!(b, b'\t' | b' '..=b'~')).count();
            self.plain(&rest.as_bytes()[..plain], out);
            rest = &rest[plain..];
            if let Some(c) = rest.chars().next() {
                self.character(c, out);
                rest = &rest[c.len_utf8()..];
            }
        }
    }

    fn plain(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.column >= LINE_BYTES {
                self.new_line(out);
            }
            let (now, later) = bytes.split_at(bytes.len().min(LINE_BYTES - self.column));
            self.put(now, out);
            bytes = later;
        }
    }

    fn character(&mut self, c: char, out: &mut Vec<u8>) {
        match c {
            '\n' if self.after_return => self.after_return = false,
            '\n' => self.new_line(out),
            '\r' => {
                self.new_line(out);
                self.after_return = true;
            }
            c if c.is_control() || turns_text_around(c) => self.put(c.escape_default().to_string().as_bytes(), out),
            c => self.put(c.encode_utf8(&mut [0; 4]).as_bytes(), out),
        }
    }

    fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.column >= LINE_BYTES {
            self.new_line(out);
        }
        self.after_return = false;
        self.column += bytes.len();
        out.extend_from_slice(bytes);
    }

    fn new_line(&mut self, out: &mut Vec<u8>) {
        self.after_return = false;
        self.column = 0;
        out.push(b'\n');
    }
}

/// A byte that belongs to no character, as `\xff`.
fn hex(byte: u8) -> [u8; 4] {
    let digit = |n: u8| b"0123456789abcdef"[usize::from(n & 15)];
    [b'\\', b'x', digit(byte >> 4), digit(byte)]
}

/// Bidirectional controls: they make a line read differently from what it says.
fn turns_text_around(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Bytes at the end that begin a character and do not complete it.
fn torn_bytes(raw: &[u8]) -> usize {
    for back in 1..=raw.len().min(3) {
        let needed = match raw[raw.len() - back] {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if needed > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(pieces: &[&[u8]]) -> String {
        let (mut cleaner, mut out) = (Cleaner::default(), Vec::new());
        for piece in pieces {
            cleaner.clean(piece, &mut out);
        }
        cleaner.end(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn log(folder: &Path, file_bytes: u64) -> Log {
        Log { file_bytes, ..Log::new(&folder.join("trainer.log")) }
    }

    fn print(log: &Log, bytes: &[u8]) {
        let (read, write) = std::io::pipe().unwrap();
        let thread = log.attach(read.into()).unwrap();
        let mut write = write;
        write.write_all(bytes).unwrap();
        drop(write);
        thread.join().unwrap();
    }

    #[test]
    fn escape_codes_and_bad_utf_8_become_harmless_text() {
        assert_eq!(cleaned(&[b"\x1b[31mred\x1b[0m\n"]), "\\u{1b}[31mred\\u{1b}[0m\n");
        assert_eq!(cleaned(&[b"a\xff\xfeb\n"]), "a\\xff\\xfeb\n");
        assert_eq!(cleaned(&["\u{9b}31m \u{202e}olleh\n".as_bytes()]), "\\u{9b}31m \\u{202e}olleh\n");
        assert_eq!(cleaned(&[b"10%\r20%\r\n30%"]), "10%\n20%\n30%\n");
    }

    #[test]
    fn characters_torn_between_reads_come_together() {
        let text = "größer: 日本 🦀\n";
        for cut in 0..text.len() {
            assert_eq!(cleaned(&[&text.as_bytes()[..cut], &text.as_bytes()[cut..]]), text, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(cleaned(&bytes), text);
        assert_eq!(cleaned(&[b"\xf0\x9f"]), "\\xf0\\x9f\n");
    }

    #[test]
    fn a_line_of_ten_megabytes_is_broken_up_and_nothing_of_it_lost() {
        let text = cleaned(&[&vec![b'x'; 10_000_000]]);
        assert!(text.lines().all(|line| line.len() <= LINE_BYTES));
        assert_eq!(text.bytes().filter(|b| *b == b'x').count(), 10_000_000);
    }

    #[test]
    fn the_tail_is_the_last_twenty_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path(), FILE_BYTES);
        let text: String = (0..100_000).map(|i| format!("line {i}\n")).collect();
        print(&log, text.as_bytes());
        let tail = log.tail();
        assert_eq!((tail.len(), tail[0].as_str(), tail[19].as_str()), (20, "line 99980", "line 99999"));
        assert_eq!(std::fs::read_to_string(folder.path().join("trainer.log")).unwrap(), text);
        print(&log, b"the next trainer");
        assert_eq!(log.tail(), ["the next trainer"]);
    }

    #[test]
    fn a_flood_fills_five_files_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path(), 100_000);
        print(&log, &b"a flood of words\n".repeat(100_000));
        let sizes: Vec<u64> =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(sizes.len(), 5);
        assert!(sizes.iter().all(|size| *size <= 100_000), "{sizes:?}");
    }

    #[test]
    fn a_log_that_cannot_be_written_does_not_hold_the_trainer_up() {
        let log = Log::new(Path::new("/nowhere/trainer.log"));
        print(&log, &b"word\n".repeat(100_000));
        assert_eq!(log.tail().len(), 20);
    }
}
