//! The newest lines of a job's `trainer.log`, in bounded memory whatever was printed.
//!
//! Not here: who writes that file and makes its lines harmless (`supervisor::log`).

use crate::engine::Engine;
use protocol::limits;
use protocol::problem::{Outcome, Problem};
use protocol::view::{LogLevel, LogLine, LogTail};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// Most bytes read from the end of a log: `limits::LOG_LINES` of usual length.
const BYTES: u64 = 2 * 1024 * 1024;

impl Engine {
    /// The newest `lines` of what a job's trainer printed; none where it has not printed yet. Errors: `NotFound`.
    pub fn log(&self, id: &str, lines: u32) -> Outcome<LogTail> {
        let path = self.run_folder(id)?.trainer_log();
        let text = end_of(&path).map_err(|e| Problem::io(&e, "reading the log", &path))?;
        let lines = lines.min(limits::LOG_LINES) as usize;
        let mut newest: Vec<LogLine> = text.lines().rev().take(lines).map(line_of).collect();
        newest.reverse();
        Ok(LogTail { lines: newest })
    }
}

/// The last bytes of a file from a line's start on; nothing where there is no file.
fn end_of(path: &Path) -> std::io::Result<String> {
    let mut file = match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(String::new()),
        opened => opened?,
    };
    let from = file.metadata()?.len().saturating_sub(BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = if from == 0 { &text[..] } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    Ok(whole.to_owned())
}

fn line_of(text: &str) -> LogLine {
    LogLine { at_ms: None, level: level_of(text), text: text.to_owned() }
}

/// The trainer prints sentences for people: their words tell how much they matter.
fn level_of(text: &str) -> LogLevel {
    let small = text.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| small.contains(word));
    if has(&["panicked", "error", "failed", "fatal"]) {
        LogLevel::Error
    } else if has(&["warning", "left out", "not known", "not finite", "killed by", "exited with"]) {
        LogLevel::Warning
    } else if small.starts_with("step ") {
        LogLevel::Info
    } else {
        LogLevel::Output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_log_is_read_from_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a line of some length\n".repeat(200_000) + "the last one\n").unwrap();
        let text = end_of(file.path()).unwrap();
        assert!(text.len() as u64 <= BYTES && text.starts_with("a line") && text.ends_with("the last one\n"));
        assert_eq!(end_of(Path::new("/nowhere")).unwrap(), "");
    }

    #[test]
    fn words_tell_how_much_a_line_matters() {
        assert_eq!(level_of("step 3: loss 2.5, 10 tokens/s"), LogLevel::Info);
        assert_eq!(level_of("thread 'main' panicked at x.rs"), LogLevel::Error);
        assert_eq!(level_of("step 3: left out: not finite"), LogLevel::Warning);
        assert_eq!(level_of("supervisor: attempt 1 was killed by signal 9 (SIGKILL)"), LogLevel::Warning);
        assert_eq!(level_of("loading"), LogLevel::Output);
    }
}
