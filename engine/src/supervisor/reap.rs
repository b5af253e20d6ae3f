//! A trainer whose supervisor is gone: it saves and leaves by itself; one that does not is ended, and never anyone else.

use super::drive::rules;
use super::socket;
use protocol::link::Request;
use protocol::{Code, Outcome, Problem};
use rustix::process::Signal;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use store::identity::{self, Identity};
use store::lock;
use store::run::RunFolder;

/// Descriptor at which a trainer has its run's lock (`spawn`).
const RUN_LOCK: u32 = 5;
/// Between two looks at a lock.
const LOOK: Duration = Duration::from_millis(50);
/// Time for the kernel to clear away a killed process.
const CLEAR: Duration = Duration::from_secs(10);

/// Waits until nobody holds the run, as long as its trainer may take to save and leave and at least `patience`; a trainer
/// that still holds it then, with no supervisor left, is killed. True when one had to be.
/// Errors: `Busy` when a supervisor lives or what holds the run is no trainer of ours.
pub fn reap(run_folder: &Path, patience: Duration) -> Outcome<bool> {
    let path = run_folder.join("lock");
    if wait_free(&path, run_folder, patience.max(time_to_leave(run_folder)))? {
        return Ok(false);
    }
    refuse_if_supervised(&path, run_folder)?;
    let trainers = holders(&path);
    if trainers.is_empty() {
        return Err(busy(&path, "something that is no trainer of ours holds its lock"));
    }
    for trainer in &trainers {
        identity::signal(trainer, Signal::KILL)?;
    }
    if wait_free(&path, run_folder, CLEAR)? {
        return Ok(true);
    }
    Err(busy(&path, "its trainer was killed and does not end; dmesg may tell which device or disk it waits for"))
}

/// What the plan's checkpoint takes; nothing where there is no plan that could be running.
fn time_to_leave(run_folder: &Path) -> Duration {
    let plan = RunFolder::open(run_folder).and_then(|run| run.plan());
    plan.map_or(Duration::ZERO, |plan| rules(&plan).grace())
}

/// True once the lock is free; refuses as soon as a supervisor answers.
fn wait_free(path: &Path, run_folder: &Path, patience: Duration) -> Outcome<bool> {
    let until = Instant::now() + patience;
    while lock::is_held(path)? {
        if socket::request(run_folder, Request::Ping).is_ok() {
            return Err(busy(path, "its supervisor answers"));
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
    Ok(true)
}

/// The record in the lock never lets anyone be signalled; it may well keep us from it.
fn refuse_if_supervised(path: &Path, run_folder: &Path) -> Outcome<()> {
    let lives = lock::owner(path).is_some_and(|owner| identity::is_alive(&owner));
    if lives || socket::request(run_folder, Request::Ping).is_ok() {
        return Err(busy(path, "its supervisor lives and does not answer"));
    }
    Ok(())
}

/// Trainers that inherited this lock. What counts is the open file, not a number someone wrote down.
fn holders(path: &Path) -> Vec<Identity> {
    let Ok(lock) = std::fs::metadata(path) else { return Vec::new() };
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        // The identity comes first: whoever gets this pid afterwards has another start time and is not signalled.
        let who = identity::of_pid(pid)?;
        let held = std::fs::metadata(format!("/proc/{pid}/fd/{RUN_LOCK}")).ok()?;
        let same = (held.dev(), held.ino()) == (lock.dev(), lock.ino());
        (same && is_trainer(pid)).then_some(who)
    })
    .collect()
}

fn is_trainer(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"anneal-trainer\0run\0"))
}

fn busy(path: &Path, why: &str) -> Problem {
    let owner = lock::owner(path).map_or(String::new(), |owner| format!(" (process {})", owner.pid));
    Problem::new(Code::Busy, format!("the job is being run by another process{owner}")).why(why).file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process with a lock on this path at the given descriptor, called `name run`.
    fn holder(path: &Path, descriptor: u32, name: &str) -> Child {
        let folder = path.parent().unwrap();
        std::fs::write(folder.join("run"), "echo held; read -r nothing").unwrap();
        let script = format!("exec {descriptor}>>lock; flock -x {descriptor}; exec -a {name} /bin/sh run");
        let mut shell = Command::new("/bin/bash");
        shell.args(["-c", &script]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut said = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        child
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_run_that_nobody_holds_needs_no_reaping() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!reap(folder.path(), Duration::ZERO).unwrap());
    }

    #[test]
    fn a_hung_trainer_that_lost_its_supervisor_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut trainer = holder(&folder.path().join("lock"), 5, "anneal-trainer");
        assert!(reap(folder.path(), Duration::from_millis(100)).unwrap());
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&trainer.wait().unwrap()), Some(9));
        assert!(!lock::is_held(&folder.path().join("lock")).unwrap());
    }

    #[test]
    fn a_stranger_that_holds_the_lock_is_never_signalled() {
        let folder = tempfile::tempdir().unwrap();
        for (descriptor, name) in [(5, "editor"), (7, "anneal-trainer")] {
            let mut stranger = holder(&folder.path().join("lock"), descriptor, name);
            let problem = reap(folder.path(), Duration::from_millis(100)).unwrap_err();
            assert_eq!(problem.code, Code::Busy);
            assert!(stranger.try_wait().unwrap().is_none(), "it still runs");
            end(stranger);
        }
    }

    #[test]
    fn a_living_owner_in_the_record_keeps_everyone_from_being_signalled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let child = holder(&path, 5, "anneal-trainer");
        std::fs::write(&path, serde_json::to_string(&identity::own().unwrap()).unwrap()).unwrap();
        assert_eq!(reap(folder.path(), Duration::ZERO).unwrap_err().code, Code::Busy);
        end(child);
        assert!(!reap(folder.path(), Duration::ZERO).unwrap());
    }
}
