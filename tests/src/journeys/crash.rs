//! Kill -9 of the command line, the supervisor and the trainer at random points: nothing is lost, nothing is left, and the
//! resumed run is bit for bit the run that was never disturbed.

use super::lab::{Lab, Outcome, PATIENCE, binary, kill, until};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const STEPS: u64 = 120;

/// Points of death a victim: `ANNEAL_SOAK` raises it.
fn points() -> u64 {
    if std::env::var_os("ANNEAL_SOAK").is_some() { 100 } else { 10 }
}

/// A seeded delay below a run's length.
fn delay(victim: u64, point: u64) -> Duration {
    let x = (victim * 1_000_003 + point + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Duration::from_millis((x ^ (x >> 29)) % 1500)
}

/// The undisturbed run that others are held against.
fn reference(lab: &Lab, job: &str) -> Outcome {
    let id = submit(lab, job);
    lab.wait_for(&id, &["finished"]);
    lab.outcome(&id)
}

fn submit(lab: &Lab, job: &str) -> String {
    lab.json(&["submit", job])["job"].as_str().unwrap().to_owned()
}

#[test]
fn a_killed_trainer_is_restarted_and_the_result_is_the_same_bit_for_bit() {
    let lab = Lab::new();
    let job = lab.job(STEPS, "");
    let expected = reference(&lab, job.to_str().unwrap());
    for point in 0..points() {
        let id = submit(&lab, job.to_str().unwrap());
        assert!(until(PATIENCE, || lab.pid(true).is_some()));
        std::thread::sleep(delay(1, point));
        if let Some(pid) = lab.pid(true) {
            kill(pid, "KILL");
        }
        lab.wait_for(&id, &["finished"]);
        assert_eq!(lab.outcome(&id), expected, "point {point}\n{}", lab.log(&id));
    }
    lab.nothing_left();
}

#[test]
fn a_killed_supervisor_leaves_an_interrupted_job_that_resumes_bit_for_bit() {
    let lab = Lab::new();
    let job = lab.job(STEPS, "");
    let expected = reference(&lab, job.to_str().unwrap());
    for point in 0..points() {
        let id = submit(&lab, job.to_str().unwrap());
        std::thread::sleep(delay(2, point));
        if let Some(pid) = lab.pid(false) {
            kill(pid, "KILL");
        }
        assert!(until(PATIENCE, || lab.processes().is_empty()), "left behind: {:?}\n{}", lab.processes(), lab.log(&id));
        let file = lab.home().join("runs").join(&id).join("journal.jsonl");
        let journal = || std::fs::read_to_string(&file).unwrap_or_default();
        let interrupted = lab.wait_for(&id, &["interrupted", "finished"]) == "interrupted";
        let lost = interrupted && !journal().is_empty();
        if interrupted {
            lab.json(&["resume", &id]);
        }
        lab.wait_for(&id, &["finished"]);
        assert_eq!(lab.outcome(&id), expected, "point {point}\n{}", lab.log(&id));
        assert!(!lost || journal().contains("supervisor_lost"), "point {point}\n{}", lab.log(&id));
    }
    lab.nothing_left();
}

#[test]
fn both_killed_at_once_lose_at_most_one_checkpoint_interval() {
    let lab = Lab::new();
    let job = lab.job(STEPS, "");
    let expected = reference(&lab, job.to_str().unwrap());
    for point in 0..points().div_ceil(2) {
        let id = submit(&lab, job.to_str().unwrap());
        std::thread::sleep(delay(3, point));
        for trainer in [false, true] {
            if let Some(pid) = lab.pid(trainer) {
                kill(pid, "KILL");
            }
        }
        assert!(until(PATIENCE, || lab.processes().is_empty()), "left behind: {:?}", lab.processes());
        if lab.wait_for(&id, &["interrupted", "finished"]) == "interrupted" {
            lab.json(&["resume", &id]);
        }
        lab.wait_for(&id, &["finished"]);
        assert_eq!(lab.outcome(&id), expected, "point {point}\n{}", lab.log(&id));
    }
    lab.nothing_left();
}

#[test]
fn a_killed_command_line_does_not_touch_the_job() {
    let lab = Lab::new();
    let job = lab.job(STEPS, "");
    let expected = reference(&lab, job.to_str().unwrap());
    for point in 0..points() {
        let before = lab.json(&["jobs"]).as_array().unwrap().len();
        let mut follower = lab.stream(&["train", job.to_str().unwrap()]);
        assert!(until(PATIENCE, || lab.json(&["jobs"]).as_array().unwrap().len() > before && lab.pid(false).is_some()));
        std::thread::sleep(delay(4, point) / 2);
        follower.kill().unwrap();
        follower.wait().unwrap();
        let id = lab.json(&["jobs"])[0]["id"].as_str().unwrap().to_owned();
        lab.wait_for(&id, &["finished"]);
        assert_eq!(lab.outcome(&id), expected, "point {point}\n{}", lab.log(&id));
    }
    lab.nothing_left();
}

#[test]
fn a_job_survives_the_end_of_the_terminal_that_started_it() {
    let lab = Lab::new();
    let job = lab.job(STEPS, "");
    // A session of its own whose leader dies with a hang-up for everyone in it, as when a terminal window is closed.
    let script = format!(
        "{} train {} & until ls \"$ANNEAL_HOME\"/runs/*/journal.jsonl; do sleep 0.1; done; kill -HUP 0",
        binary("anneal").display(),
        job.display()
    );
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .env("ANNEAL_HOME", lab.home())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: setsid only changes the session of the freshly forked child.
    unsafe {
        shell.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    shell.status().unwrap();
    assert!(until(PATIENCE, || !lab.json(&["jobs"]).as_array().unwrap().is_empty()));
    let id = lab.json(&["jobs"])[0]["id"].as_str().unwrap().to_owned();
    lab.wait_for(&id, &["finished"]);
    assert_eq!(lab.losses(&id).len() as u64, STEPS);
    lab.nothing_left();
}

#[test]
fn a_stopping_supervisor_keeps_the_state_and_never_says_running_afterwards() {
    let lab = Lab::new();
    let job = lab.job(STEPS * 4, "");
    for point in 0..3 {
        let id = submit(&lab, job.to_str().unwrap());
        lab.wait_for(&id, &["running"]);
        std::thread::sleep(delay(5, point) / 3);
        if let Some(pid) = lab.pid(false) {
            kill(pid, "TERM");
        }
        assert!(until(PATIENCE, || lab.processes().is_empty()), "left behind: {:?}\n{}", lab.processes(), lab.log(&id));
        let state = lab.wait_for(&id, &["stopped", "interrupted", "finished"]);
        assert_ne!(state, "interrupted", "{}", lab.log(&id));
        lab.checkpoint(&id);
    }
}
