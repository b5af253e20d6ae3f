//! A reader of a data set that stays while a window looks at it: `anneal-trainer rows`, one question after the other.
//!
//! Not here: what the answers hold (`protocol::look`), how rows are read (`trainer`).

use crate::supervisor::spawn;
use protocol::look::{LookAtRows, RowsAsk};
use protocol::verb::Line;
use protocol::{Code, Outcome, Problem};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Longest wait for an answer: opening the largest tokenizers and training one on the data fit; a search and a page are
/// bounded by the reader itself to about a second.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// Longest answer, in bytes: every token of the longest row fits.
const ANSWER_BYTES: u64 = 64 * 1024 * 1024;

/// An open reader; the process ends with it.
pub struct RowsReader {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl RowsReader {
    /// Starts a reader. Errors: `FileUnreadable` where the program is missing; what is wrong with the data is told with the
    /// first answer.
    pub fn open(trainer: &Path, look: &LookAtRows) -> Outcome<RowsReader> {
        let failed = |e: &std::io::Error| Problem::io(e, "starting `anneal-trainer rows`", trainer);
        let mut child = Command::new(trainer)
            .arg("rows")
            .env_clear()
            .envs(spawn::trainer_environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| failed(&e))?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Problem::internal("the reader of rows has no pipes"));
        };
        let mut reader = RowsReader { child, questions, answers: BufReader::new(answers) };
        reader.say(look)?;
        Ok(reader)
    }

    /// Asks and waits for the answer. Errors: the reader's own problem; `TrainerDied` or `TrainerHung` where it gives none,
    /// after which the reader is of no use any more.
    pub fn ask<T: DeserializeOwned>(&mut self, ask: &RowsAsk) -> Outcome<T> {
        // A reader that could not open the data says so and is gone: its words are there though nothing can be asked.
        let said = self.say(ask);
        match self.answer() {
            Err(problem) if problem.code == Code::TrainerDied => Err(said.err().unwrap_or(problem)),
            answer => serde_json::from_value(answer?)
                .map_err(|e| Problem::internal("the reader of rows answered something else").why(e.to_string())),
        }
    }

    fn say(&mut self, words: &impl Serialize) -> Outcome<()> {
        let mut text = serde_json::to_vec(words).map_err(|e| {
            let what = "the name of a file or folder is no text";
            Problem::new(Code::FileUnreadable, what).why(e.to_string()).remedy("rename it")
        })?;
        text.push(b'\n');
        self.questions.write_all(&text).map_err(|e| gone(&e.to_string()))
    }

    fn answer(&mut self) -> Outcome<serde_json::Value> {
        loop {
            self.wait()?;
            let mut text = Vec::new();
            let read = self.answers.by_ref().take(ANSWER_BYTES).read_until(b'\n', &mut text);
            if read.is_err() || text.last() != Some(&b'\n') {
                return Err(gone("its answer ends in the middle"));
            }
            match serde_json::from_slice(&text).map_err(|e| gone(&e.to_string()))? {
                Line::Result { value } => return Ok(value),
                Line::Problem { problem } => return Err(problem),
                Line::Progress { .. } | Line::Text { .. } => {}
            }
        }
    }

    /// Waits until there is something to read.
    fn wait(&mut self) -> Outcome<()> {
        if !self.answers.buffer().is_empty() {
            return Ok(());
        }
        let mut fds = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        match poll(&mut fds, Some(&PATIENCE)) {
            Ok(0) => Err(Problem::new(Code::TrainerHung, "the reader of rows does not answer")
                .why(format!("nothing came within {} seconds", PATIENCE.tv_sec))
                .kept("nothing was changed")
                .remedy("try again; if it repeats, the tokenizer or the template of the model takes too long")),
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::INTR) => self.wait(),
            Err(e) => Err(gone(&e.to_string())),
        }
    }
}

impl Drop for RowsReader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gone(why: &str) -> Problem {
    Problem::new(Code::TrainerDied, "the reader of rows has ended")
        .why(why)
        .kept("nothing was changed")
        .remedy("try again; if it repeats, check that model and data are what they should be")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn look() -> LookAtRows {
        let text = "stage = \"sft\"\n[model]\npath = \"m\"\n[data]\ntrain = [\"d\"]\n";
        let spec = protocol::JobSpec::parse(text, &[], Path::new("/")).unwrap();
        LookAtRows { spec: Box::new(spec), max_length: 8 }
    }

    /// A shell script stands in for the trainer.
    fn reader(script: &str) -> (tempfile::TempDir, RowsReader) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trainer");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        // Another test may just be starting a process, which holds the script open for writing until it runs.
        let open = || loop {
            match RowsReader::open(&path, &look()) {
                Err(problem) if problem.why.contains("busy") || problem.what.contains("busy") => {}
                opened => return opened.unwrap(),
            }
        };
        let reader = open();
        (folder, reader)
    }

    #[test]
    fn questions_are_answered_one_after_the_other() {
        let (_folder, mut reader) = reader(
            r#"read first; while read ask; do echo '{"line":"progress","phase":"p","done":1,"total":2,"unit":"rows"}'; echo '{"line":"result","value":{"row":7}}'; done"#,
        );
        for _ in 0..3 {
            let found: protocol::look::FoundRow = reader.ask(&RowsAsk::Find { text: "x".into(), from: 1 }).unwrap();
            assert_eq!((found.row, found.next), (Some(7), None));
        }
    }

    #[test]
    fn a_reader_that_could_not_open_the_data_says_why() {
        let (_folder, mut reader) =
            reader(r#"read first; echo '{"line":"problem","problem":{"code":"file_empty","what":"w"}}'; exit 3"#);
        std::thread::sleep(std::time::Duration::from_millis(200));
        let problem = reader.ask::<serde_json::Value>(&RowsAsk::Row { row: 1 }).unwrap_err();
        assert_eq!(problem.code, Code::FileEmpty);
        assert_eq!(reader.ask::<serde_json::Value>(&RowsAsk::Row { row: 1 }).unwrap_err().code, Code::TrainerDied);
    }
}
