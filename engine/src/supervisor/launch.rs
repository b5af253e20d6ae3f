//! Starts a supervisor that outlives whoever started it: in a scope of its own where the user's systemd offers one, so that
//! the end of the desktop's scope does not reach it, else simply in its own session and as nobody's child.
//!
//! The new supervisor says on its standard output when it holds the run, or what kept it from that.

use super::drive::rules;
use super::spawn;
use protocol::{Code, Outcome, Problem};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use store::run::RunFolder;

/// Time for a supervisor to come up, besides what it waits for a trainer that an earlier one left.
const START: Duration = Duration::from_secs(30);
/// Time for systemd to answer.
const SCOPE: Duration = Duration::from_secs(3);
/// Longest word of a starting supervisor, in bytes.
const WORD_BYTES: usize = 64 * 1024;

/// The first and only line a supervisor prints.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// It holds the run and listens.
    Ready,
    /// It cannot begin.
    Problem(Problem),
}

/// Starts `anneal supervise RUN_FOLDER` (the `anneal` beside the current executable), detached, and returns once it holds
/// the run.
/// Errors: what kept it from that; nothing runs then.
pub fn launch(home: &Path, run_folder: &Path) -> Outcome<()> {
    let patience = START + rules(&RunFolder::open(run_folder)?.plan()?).grace();
    start(&beside("anneal")?, home, run_folder, scope_works(), patience)
}

/// A program beside the current executable.
/// Errors: `FileUnreadable` where it is not there.
pub fn beside(name: &str) -> Outcome<PathBuf> {
    let own = std::env::current_exe().map_err(|e| Problem::internal("who am I").why(e.to_string()))?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        return Err(Problem::new(Code::FileUnreadable, format!("{name} is not beside {}", own.display()))
            .file(&path)
            .remedy("install Anneal again; its programs belong into one folder"));
    }
    Ok(path)
}

/// Starts that `anneal`, in a scope or not.
fn start(anneal: &Path, home: &Path, run_folder: &Path, scope: bool, patience: Duration) -> Outcome<()> {
    let said = spawn_detached(anneal, home, run_folder, scope)
        .map_err(|e| Problem::internal("the supervisor could not be started").why(e.to_string()).file(anneal))?;
    match first_line(said, patience) {
        Ok(line) => match serde_json::from_slice(&line) {
            Ok(Word::Ready) => Ok(()),
            Ok(Word::Problem(problem)) => Err(problem),
            Err(_) => Err(died(run_folder)),
        },
        Err(e) if e.kind() == std::io::ErrorKind::TimedOut => {
            let what = format!("the supervisor was not ready after {} s", patience.as_secs());
            Err(Problem::new(Code::SupervisorLost, what).file(&log_path(run_folder)).remedy("resume the job"))
        }
        Err(_) => Err(died(run_folder)),
    }
}

/// A shell starts it in the background and is gone at once: the supervisor has no parent that could take it along, and
/// leaves no zombie to anyone.
fn spawn_detached(anneal: &Path, home: &Path, run_folder: &Path, scope: bool) -> std::io::Result<std::io::PipeReader> {
    let (said, word) = std::io::pipe()?;
    let log = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(log_path(run_folder))?;
    let in_scope = scope_command(run_folder);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "\"$@\" &", "sh"]);
    shell.args(if scope { &in_scope[..] } else { &[] });
    shell.arg(anneal).arg("supervise").arg(run_folder);
    shell.env_clear().envs(spawn::trainer_environment()).envs(session_environment()).env("ANNEAL_HOME", home);
    shell.current_dir("/").stdin(Stdio::null()).stdout(word).stderr(log);
    // SAFETY: setsid is a single system call.
    unsafe {
        shell.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    let status = shell.spawn()?.wait()?;
    if !status.success() {
        return Err(std::io::Error::other(format!("/bin/sh: {status}")));
    }
    Ok(said)
}

fn scope_command(run_folder: &Path) -> Vec<OsString> {
    let mut description = OsString::from("--description=Anneal job ");
    description.push(run_folder.file_name().unwrap_or_default());
    let words = ["systemd-run", "--user", "--scope", "--quiet", "--collect"];
    words.iter().map(OsString::from).chain([description, "--".into()]).collect()
}

/// What systemd-run needs to find the user's manager.
fn session_environment() -> Vec<(OsString, OsString)> {
    spawn::environment(["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"])
}

/// True when a scope can be had now. Tried with a program that does nothing, so that a supervisor is never started twice.
fn scope_works() -> bool {
    let manager = std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|d| Path::new(&d).join("systemd/private").exists());
    if !manager {
        return false;
    }
    let tried = Command::new("systemd-run")
        .args(["--user", "--scope", "--quiet", "--collect", "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    tried.is_ok_and(|child| succeeds_within(child, SCOPE))
}

fn succeeds_within(mut child: Child, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// The first line of a pipe, without its end.
fn first_line(mut pipe: std::io::PipeReader, patience: Duration) -> std::io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let mut line = Vec::new();
    while line.len() < WORD_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(std::io::ErrorKind::TimedOut.into()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
            Ok(_) => {}
        }
        let mut piece = [0; 4096];
        let n = pipe.read(&mut piece)?;
        line.extend_from_slice(&piece[..n]);
        if let Some(end) = line.iter().position(|b| *b == b'\n') {
            line.truncate(end);
            return Ok(line);
        }
        if n == 0 {
            break;
        }
    }
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

fn died(run_folder: &Path) -> Problem {
    let path = log_path(run_folder);
    let text = std::fs::read(&path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).trim().to_owned();
    Problem::new(Code::SupervisorLost, "the supervisor ended before it began").why(text).file(&path)
}

fn log_path(run_folder: &Path) -> PathBuf {
    run_folder.join("supervisor.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for `anneal`, written by another process: no descriptor of this one could keep it from being executed.
    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("anneal");
        let write = "printf '#!/bin/sh\n%s\n' \"$1\" > \"$2\"; chmod 700 \"$2\"";
        let status = Command::new("/bin/sh").args(["-c", write, "sh", text]).arg(&path).status().unwrap();
        assert!(status.success());
        path
    }

    fn started(text: &str, patience: Duration) -> (Outcome<()>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let outcome = start(&script(folder.path(), text), Path::new("/home/of/runs"), folder.path(), false, patience);
        (outcome, folder)
    }

    /// Parent, session and terminal of a process as `/proc` tells them. (`getsid` of a process whose session began
    /// outside its PID namespace, as in a container, is 0, which a non-zero PID type can't hold.)
    fn lineage(pid: &str) -> [String; 3] {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        [fields[1], fields[3], fields[4]].map(str::to_owned)
    }

    #[test]
    fn a_supervisor_is_nobodys_child_and_has_its_own_session() {
        let script =
            "echo $$ > \"$2/pid\"; echo \"$1 $ANNEAL_HOME $(pwd)\" > \"$2/said\"; echo '\"ready\"'; exec sleep 600";
        let (outcome, folder) = started(script, Duration::from_secs(20));
        outcome.unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("said")).unwrap(), "supervise /home/of/runs /\n");
        let pid: u32 = std::fs::read_to_string(folder.path().join("pid")).unwrap().trim().parse().unwrap();
        let [parent, session, terminal] = lineage(&pid.to_string());
        let [_, own_session, _] = lineage("self");
        assert_ne!(parent, std::process::id().to_string());
        assert_ne!(session, own_session);
        assert_eq!(terminal, "0");
        store::identity::signal(&store::identity::of_pid(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn what_keeps_a_supervisor_from_beginning_comes_back() {
        let said = r#"echo '{"problem":{"code":"busy","what":"taken"}}'; exit 3"#;
        assert_eq!(started(said, Duration::from_secs(20)).0.unwrap_err().code, Code::Busy);
        let problem = started("echo 'no room for a stack' >&2; exit 9", Duration::from_secs(20)).0.unwrap_err();
        assert_eq!(problem.code, Code::SupervisorLost);
        assert!(problem.why.contains("no room for a stack"), "{problem}");
    }

    #[test]
    fn a_supervisor_that_says_nothing_is_not_waited_for_for_ever() {
        let problem = started("exec sleep 5", Duration::from_millis(200)).0.unwrap_err();
        assert!(problem.what.contains("not ready"), "{problem}");
    }
}
