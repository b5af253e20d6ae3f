//! Runs `anneal-trainer VERB` and streams its answer: one JSON request on its standard input, JSON lines on its standard
//! output, the last one a result or a problem.
//!
//! Not here: `anneal-trainer run`, which the supervisor starts and watches; what a verb does (`trainer`).

use crate::supervisor::core::signal_name;
use crate::supervisor::{launch, spawn};
use protocol::verb::Line;
use protocol::{Code, Outcome, Problem};
use serde::Serialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Longest line of an answer, in bytes: a preview with every token of the longest row fits.
const LINE_BYTES: u64 = 64 * 1024 * 1024;

/// The `anneal-trainer` beside the current executable.
/// Errors: `FileUnreadable` where it is not there.
pub fn trainer_path() -> Outcome<PathBuf> {
    launch::beside("anneal-trainer")
}

/// Runs `trainer verb`: the request as JSON on its standard input, every line but the last to `on_line`, its result at the
/// end. `Break` ends the process and gives `Cancelled`.
/// Errors: the verb's own problem, or `TrainerDied` with the last lines it printed.
pub fn call(
    trainer: &Path,
    verb: &str,
    request: &impl Serialize,
    on_line: impl FnMut(&Line) -> ControlFlow<()>,
) -> Outcome<serde_json::Value> {
    // The one thing in a request that may be no text is the name of a file.
    let request = serde_json::to_vec(request).map_err(|e| {
        let what = "the name of a file or folder is no text";
        Problem::new(Code::FileUnreadable, what).why(e.to_string()).remedy("rename it")
    })?;
    let mut child = Command::new(trainer)
        .arg(verb)
        .env_clear()
        .envs(spawn::trainer_environment())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Problem::io(&e, &format!("starting `anneal-trainer {verb}`"), trainer))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        // A child that never reads its request closes the pipe when it ends; what it says then tells why.
        scope.spawn(move || stdin.map(|mut pipe| pipe.write_all(&request)));
        let printed = scope.spawn(move || stderr.map(last_lines).unwrap_or_default());
        let answer = stdout.map_or(Ok(None), |pipe| follow(BufReader::new(pipe), on_line));
        if answer.is_err() {
            // Whatever it is doing, nobody waits for it any more.
            let _ = child.kill();
        }
        let status = wait(&mut child)?;
        let printed = printed.join().unwrap_or_default();
        answer?.unwrap_or_else(|| Err(ended_without_answer(verb, status, &printed)))
    })
}

/// The answer of a stream of lines; `None` when it ends without one.
fn follow(
    mut lines: impl BufRead,
    mut on_line: impl FnMut(&Line) -> ControlFlow<()>,
) -> Outcome<Option<Outcome<serde_json::Value>>> {
    loop {
        let mut text = Vec::new();
        let read = lines.by_ref().take(LINE_BYTES).read_until(b'\n', &mut text);
        if read.is_err() || text.last() != Some(&b'\n') {
            let too_long = text.len() as u64 == LINE_BYTES;
            return if too_long { Err(not_understood("a line is too long".to_owned())) } else { Ok(None) };
        }
        match serde_json::from_slice(&text).map_err(|e| not_understood(e.to_string()))? {
            Line::Result { value } => return Ok(Some(Ok(value))),
            Line::Problem { problem } => return Ok(Some(Err(problem))),
            line => {
                if on_line(&line).is_break() {
                    return Err(Problem::new(Code::Cancelled, "ended before it was done"));
                }
            }
        }
    }
}

fn wait(child: &mut Child) -> Outcome<ExitStatus> {
    child.wait().map_err(|e| Problem::internal("waiting for anneal-trainer failed").why(e.to_string()))
}

fn not_understood(why: String) -> Problem {
    Problem::internal("the answer of anneal-trainer is not understood").why(why)
}

fn ended_without_answer(verb: &str, status: ExitStatus, printed: &[String]) -> Problem {
    let how = match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal} ({})", signal_name(signal)),
        (None, code) => format!("ended with exit status {} and no answer", code.unwrap_or(-1)),
    };
    let why = if printed.is_empty() { "it printed nothing".to_owned() } else { printed.join("\n") };
    Problem::new(Code::TrainerDied, format!("`anneal-trainer {verb}` {how}"))
        .why(why)
        .kept("nothing was changed")
        .remedy("check that its input is what it should be and that memory is left, then try again")
}

fn last_lines(pipe: impl Read) -> Vec<String> {
    crate::supervisor::log::tail_of(pipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::verb::Prompt;
    use serde_json::Value;

    /// A shell stands in for the trainer; its verb is the script it runs.
    fn shell(text: &str, request: &impl Serialize, on_line: impl FnMut(&Line) -> ControlFlow<()>) -> Outcome<Value> {
        let folder = tempfile::tempdir().unwrap();
        let verb = folder.path().join("read");
        std::fs::write(&verb, text).unwrap();
        call(Path::new("/bin/sh"), verb.to_str().unwrap(), request, on_line)
    }

    fn asked(text: &str) -> (Outcome<Value>, Vec<Line>) {
        let mut lines = vec![];
        let outcome = shell(text, &Prompt::Text("hello".into()), |line| {
            lines.push(line.clone());
            ControlFlow::Continue(())
        });
        (outcome, lines)
    }

    #[test]
    fn the_request_goes_in_and_lines_and_result_come_out() {
        let (outcome, lines) = asked(
            r#"echo '{"line":"text","text":"a"}'; printf '{"line":"result","value":["%s",' "${0##*/}"; cat; echo ']}'"#,
        );
        assert_eq!(outcome.unwrap(), serde_json::json!(["read", {"text": "hello"}]));
        assert_eq!(lines, [Line::Text { text: "a".into() }]);
    }

    #[test]
    fn a_problem_comes_through_as_it_is() {
        let (outcome, _) =
            asked(r#"echo '{"line":"problem","problem":{"code":"template_invalid","what":"w"}}'; exit 3"#);
        assert_eq!(outcome.unwrap_err().code, Code::TemplateInvalid);
    }

    #[test]
    fn a_death_is_told_with_its_signal_and_last_words() {
        let (outcome, _) = asked("echo 'out of ideas' >&2; kill -ABRT $$");
        let problem = outcome.unwrap_err();
        assert_eq!(problem.code, Code::TrainerDied);
        assert!(problem.what.contains("SIGABRT") && problem.why.contains("out of ideas"), "{problem}");
        assert_eq!(asked("exit 0").0.unwrap_err().code, Code::TrainerDied);
    }

    #[test]
    fn a_large_request_that_is_never_read_and_a_flood_of_complaints_block_nobody() {
        let deaf = "yes complaint | head -c 3000000 >&2; exit 1";
        let problem = shell(deaf, &"x".repeat(10_000_000), |_| ControlFlow::Continue(())).unwrap_err();
        assert!(problem.why.lines().count() == 20, "{problem}");
    }

    #[test]
    fn nonsense_ends_the_child() {
        let (outcome, _) = asked("echo nonsense; exec sleep 600");
        assert_eq!(outcome.unwrap_err().code, Code::Internal);
    }

    #[test]
    fn a_call_can_be_ended_from_its_lines() {
        let endless = r#"echo '{"line":"text","text":"a"}'; exec sleep 600"#;
        let problem = shell(endless, &"x", |_| ControlFlow::Break(())).unwrap_err();
        assert_eq!(problem.code, Code::Cancelled);
    }

    #[test]
    fn the_child_sees_no_variable_that_could_be_a_secret() {
        // Cargo sets it for every test and no trainer needs it.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let (outcome, _) = asked(r#"printf '{"line":"result","value":"%s"}\n' "$CARGO_MANIFEST_DIR""#);
        assert_eq!(outcome.unwrap(), "");
    }
}
