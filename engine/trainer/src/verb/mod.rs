//! The verbs of `anneal-trainer`: one JSON request on standard input, JSON lines on standard output, the last one a result
//! or a problem. `run` alone speaks over fd 3 instead.
//!
//! Not here: the arithmetic of a step (`step.rs`), formats of files (crate `formats`), checkpoints on disk (crate `store`).

pub mod bench;
pub mod evaluate;
pub mod export;
pub mod generate;
pub mod probe;
pub mod read;
pub mod rows;
pub mod run;
mod subject;
#[cfg(test)]
mod testing;

use crate::process::{DONE, REFUSED, USAGE, usage};
use protocol::verb::Line;
use protocol::{Code, Outcome, Problem, limits};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longest request, in bytes: a record of the longest allowed size as a prompt, escaped, and a job around it.
const REQUEST_BYTES: u64 = 2 * limits::RECORD_BYTES as u64 + limits::JOB_BYTES;
/// Shortest time between two progress lines: ten a second are as many as an eye can follow.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Carries out the verb that the arguments name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let Some((verb, rest)) = arguments.split_first() else {
        return misused(usage("no verb is given: run, read, rows, generate, evaluate, export, probe or bench"));
    };
    if verb == "run" {
        return match run::Arguments::parse(rest) {
            Ok(arguments) => ExitCode::from(run::main(arguments)),
            Err(problem) => misused(problem),
        };
    }
    if !rest.is_empty() {
        return misused(usage(format!("`{}` takes its request on standard input, no arguments", verb.display())));
    }
    let mut lines = Lines::new(std::io::stdout().lock());
    if verb == "rows" {
        // Not through the library's own buffer, in which a question could lie unseen.
        return match rustix::io::dup(rustix::stdio::stdin()) {
            Ok(input) => ExitCode::from(rows::main(std::fs::File::from(input), &mut lines)),
            Err(e) => misused(usage("the questions cannot be read").why(e.to_string())),
        };
    }
    let answer = match verb.to_str() {
        Some("read") => answered(&mut lines, read::main),
        Some("generate") => answered(&mut lines, generate::main),
        Some("evaluate") => answered(&mut lines, evaluate::main),
        Some("export") => answered(&mut lines, export::main),
        Some("bench") => answered(&mut lines, bench::main),
        Some("probe") => answered(&mut lines, probe::main),
        _ => return misused(usage(format!("\"{}\" is no verb of anneal-trainer", verb.display()))),
    };
    ExitCode::from(lines.end(answer))
}

fn misused(problem: Problem) -> ExitCode {
    eprintln!("{problem}");
    ExitCode::from(USAGE)
}

/// Reads the request and carries it out; a panic on the way is a defect of ours and is told as one.
fn answered<R: DeserializeOwned, T: Serialize, W: Write>(
    lines: &mut Lines<W>,
    verb: fn(R, &mut Lines<W>) -> Outcome<T>,
) -> Outcome<serde_json::Value> {
    let request = request(std::io::stdin().lock())?;
    let value = catch_unwind(AssertUnwindSafe(|| verb(request, lines))).unwrap_or_else(|panic| Err(defect(&panic)))?;
    serde_json::to_value(value).map_err(|e| Problem::internal("the result cannot be written").why(e.to_string()))
}

fn defect(panic: &(dyn std::any::Any + Send)) -> Problem {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    Problem::internal("an assumption inside Anneal does not hold").why(text.unwrap_or("no words were left"))
}

/// Parses one JSON request. Errors: `TooLarge`, `SettingInvalid` with serde's sentence.
pub fn request<R: DeserializeOwned>(input: impl Read) -> Outcome<R> {
    let mut text = Vec::new();
    let read = input.take(REQUEST_BYTES + 1).read_to_end(&mut text);
    read.map_err(|e| Problem::new(Code::SettingInvalid, "the request cannot be read").why(e.to_string()))?;
    if text.len() as u64 > REQUEST_BYTES {
        return Err(Problem::new(Code::TooLarge, format!("the request is longer than {REQUEST_BYTES} bytes")));
    }
    serde_json::from_slice(&text)
        .map_err(|e| Problem::new(Code::SettingInvalid, "the request is not understood").why(e.to_string()))
}

/// The lines a verb prints.
pub struct Lines<W: Write> {
    out: W,
    last_progress: Option<(String, Instant)>,
}

impl<W: Write> Lines<W> {
    /// Lines on this writer.
    pub fn new(out: W) -> Lines<W> {
        Lines { out, last_progress: None }
    }

    /// Says how far it is; at most ten lines a second, but the first of a phase and the last always.
    pub fn progress(&mut self, phase: &str, done: u64, total: u64, unit: &str) -> Outcome<()> {
        let recent = |(last, at): &(String, Instant)| last == phase && at.elapsed() < PROGRESS_EVERY;
        if self.last_progress.as_ref().is_some_and(recent) && done != total {
            return Ok(());
        }
        self.last_progress = Some((phase.to_owned(), Instant::now()));
        self.print(&Line::Progress { phase: phase.into(), done, total, unit: unit.into() })
    }

    /// A piece of generated text.
    pub fn text(&mut self, text: &str) -> Outcome<()> {
        self.print(&Line::Text { text: text.to_owned() })
    }

    /// An answer, when more may be asked.
    fn answer(&mut self, answer: Outcome<serde_json::Value>) -> Outcome<()> {
        match answer {
            Ok(value) => self.print(&Line::Result { value }),
            Err(problem) => self.print(&Line::Problem { problem }),
        }
    }

    /// The last line; returns the exit status.
    fn end(&mut self, answer: Outcome<serde_json::Value>) -> u8 {
        let (line, status) = match answer {
            Ok(value) => (Line::Result { value }, DONE),
            Err(problem) => (Line::Problem { problem }, REFUSED),
        };
        self.print(&line).map_or(REFUSED, |()| status)
    }

    fn print(&mut self, line: &Line) -> Outcome<()> {
        let lost = |e: std::io::Error| Problem::new(Code::WrongState, "nobody reads the answer").why(e.to_string());
        serde_json::to_writer(&mut self.out, line).map_err(|e| lost(e.into()))?;
        self.out.write_all(b"\n").and_then(|()| self.out.flush()).map_err(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::verb::Bench;

    fn printed(lines: &Lines<Vec<u8>>) -> Vec<Line> {
        let text = std::str::from_utf8(&lines.out).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_request_with_an_unknown_key_is_refused_and_the_key_named() {
        let problem = request::<Bench>(&br#"{"bench":"optimizer","parameters":3,"colour":1}"#[..]).unwrap_err();
        assert_eq!(problem.code, Code::SettingInvalid);
        assert!(problem.why.contains("colour"), "{problem}");
    }

    #[test]
    fn an_endless_request_is_refused() {
        let problem = request::<Bench>(std::io::repeat(b' ')).unwrap_err();
        assert_eq!(problem.code, Code::TooLarge);
    }

    #[test]
    fn a_burst_of_progress_is_a_few_lines_and_its_end_is_told() {
        let mut lines = Lines::new(Vec::new());
        for done in 0..=10_000 {
            lines.progress("tokenising", done, 10_000, "rows").unwrap();
        }
        let all = printed(&lines);
        assert!(all.len() < 100, "{} lines", all.len());
        assert!(matches!(all.last(), Some(Line::Progress { done: 10_000, .. })));
    }

    #[test]
    fn a_result_is_status_0_and_a_problem_3() {
        let mut lines = Lines::new(Vec::new());
        assert_eq!(lines.end(Ok(serde_json::json!(7))), DONE);
        assert_eq!(lines.end(Err(Problem::new(Code::NotFound, "no"))), REFUSED);
        assert_eq!(printed(&lines).len(), 2);
    }

    #[test]
    fn a_panic_is_told_as_a_defect_with_its_words() {
        let problem = defect(&"seven is not eight");
        assert_eq!((problem.code, problem.why.as_str()), (Code::Internal, "seven is not eight"));
    }
}
