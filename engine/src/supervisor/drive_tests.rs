//! Whole supervised jobs with a shell as the trainer: it runs the script `run` of the run folder, speaks JSON lines over fd 3
//! and misbehaves as it likes. The true trainer's journeys are in the crate `tests`.

use super::super::request;
use super::*;
use protocol::link::Request;
use protocol::{Entry, Event};
use std::path::Path;
use store::journal::Reader;

/// Words of a well-behaved trainer.
const WORDS: &str = r#"
say() { printf '%s\n' "$1" >&3; }
event() { say "{\"message\":\"event\",\"event\":$1}"; }
started() { event "{\"event\":\"started\",\"step\":$1,\"steps_total\":3}"; }
step() { event "{\"event\":\"step\",\"step\":$1,\"loss\":1.5,\"grad_norm\":1.0,\"learning_rate\":0.1,\"targets\":1,\"tokens\":1,\"epoch\":0.0,\"step_ms\":1.0,\"tokens_per_second\":1.0}"; }
finished() { event "{\"event\":\"finished\",\"step\":$1,\"loss\":1.5,\"memory\":{\"devices\":[],\"host_bytes_peak\":0}}"; }
hear() { read -r heard <&3; }
await() { while hear; do case "$heard" in *"$1"*) return;; esac; done; exit 9; }
say '{"protocol":1}'
await protocol
"#;

fn rules() -> Rules {
    Rules {
        quiet: Duration::from_secs(60),
        long_phase: Duration::from_secs(60),
        back_off: vec![Duration::from_millis(10)],
        stop: Duration::from_millis(400),
        leave: Duration::from_secs(5),
        ..Rules::default()
    }
}

/// A HOME with jobs that a shell runs.
struct Stage {
    _folder: tempfile::TempDir,
    home: Home,
}

/// A supervised job.
struct Job {
    run: RunFolder,
    thread: JoinHandle<Outcome<i32>>,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        Stage { _folder: folder, home }
    }

    fn start(&self, id: &str, script: &str, rules: Rules) -> Job {
        let path = self.home.run(id).unwrap();
        std::fs::create_dir_all(path.join("checkpoints")).unwrap();
        std::fs::write(path.join("job.toml"), "").unwrap();
        std::fs::write(path.join("run"), format!("{WORDS}\n{script}\n")).unwrap();
        let run = RunFolder::open(&path).unwrap();
        let (home, job, trainer) = (self.home.clone(), run.clone(), PathBuf::from("/bin/sh"));
        let (told, ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let setting = Setting { home, run: job, trainer, devices: vec!["cpu".into()], rules };
            super::run(setting, || told.send(()).unwrap())
        });
        ready.recv_timeout(Duration::from_secs(20)).unwrap();
        Job { run, thread }
    }

    /// Runs a job to its end.
    fn play(&self, script: &str, rules: Rules) -> (i32, Vec<Entry>, RunFolder) {
        let job = self.start("job", script, rules);
        let run = job.run.clone();
        let status = job.end();
        (status, entries(&run), run)
    }
}

#[test]
fn a_journal_deleted_while_the_job_runs_comes_back_and_the_loss_is_told() {
    let stage = Stage::new();
    let script = "started 0; step 1; rm journal.jsonl; sleep 0.1; step 2; step 3; finished 3";
    let (status, entries, run) = stage.play(script, rules());
    assert_eq!(status, 0);
    assert!(run.journal().is_file());
    let told = entries.iter().any(
        |e| matches!(&e.event, Event::Warning { problem, .. } if problem.what.contains("the journal was deleted")),
    );
    assert!(told, "{entries:?}");
    let steps: Vec<u64> = entries.iter().filter(|e| e.event.is_metric()).map(|e| e.event.step()).collect();
    assert_eq!(steps, [1, 2, 3]);
}

#[test]
fn the_log_says_that_a_trainer_was_killed_and_started_again() {
    let stage = Stage::new();
    let script = "echo words; started 0; if [ -e again ]; then step 1; step 2; step 3; finished 3; else : >again; step 1; kill -9 $$; fi";
    let (status, _, run) = stage.play(script, rules());
    assert_eq!(status, 0);
    let log = std::fs::read_to_string(run.trainer_log()).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(
        lines,
        [
            "words",
            "supervisor: attempt 1 was killed by signal 9 (SIGKILL)",
            "supervisor: attempt 2 is started, from step 0",
            "words"
        ]
    );
}

impl Job {
    fn end(self) -> i32 {
        self.thread.join().unwrap().unwrap()
    }

    fn ask(&self, what: Request) -> Answer {
        request(self.run.path(), what).unwrap()
    }

    /// Waits until the journal has an event of this name.
    fn wait_for(&self, name: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !names(&entries(&self.run)).contains(&name.to_owned()) {
            assert!(Instant::now() < until, "no {name}: {:?}", names(&entries(&self.run)));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn entries(run: &RunFolder) -> Vec<Entry> {
    let mut reader = Reader::open(&run.journal(), 0).unwrap();
    std::iter::from_fn(|| reader.next().unwrap()).map(|(entry, _)| entry).collect()
}

fn names(entries: &[Entry]) -> Vec<String> {
    let name = |entry: &Entry| serde_json::to_value(&entry.event).unwrap()["event"].as_str().unwrap().to_owned();
    entries.iter().map(name).collect()
}

fn log(run: &RunFolder) -> String {
    std::fs::read_to_string(run.trainer_log()).unwrap()
}

/// True once nobody holds the run: a process that was just killed lets go of the lock when the system has taken it down.
fn is_gone(run: &RunFolder) -> bool {
    let start = Instant::now();
    while run.is_held().unwrap() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    !run.is_held().unwrap() && !run.path().join("supervisor.sock").exists()
}

#[test]
fn a_job_is_journaled_acknowledged_and_leaves_nothing_behind() {
    let script = "started 0; step 1; step 2; step 3; await '\"step\":3'; finished 3";
    let stage = Stage::new();
    let (status, entries, run) = stage.play(script, rules());
    assert_eq!(names(&entries), ["started", "step", "step", "step", "finished"]);
    assert!(entries.iter().all(|entry| entry.attempt == 1 && entry.job == "job"));
    assert_eq!((status, is_gone(&run)), (0, true));
}

/// What this test process inherited itself shall not count.
fn close_on_exec() {
    for number in 3..1024 {
        // SAFETY: only a flag of the descriptor is changed; one that is not open gives EBADF.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC);
    }
}

#[test]
fn a_trainer_has_its_descriptors_its_session_and_a_bare_environment() {
    close_on_exec();
    // The shell itself keeps its script open at 10 or above.
    let script = "ls /proc/$$/fd; echo end; cd /proc/$$/fd; readlink 5 6; cat /proc/$$/oom_score_adj; env; \
                  read -r stat < /proc/$$/stat; echo stat $$ $stat; finished 0";
    let stage = Stage::new();
    let (_, _, run) = stage.play(script, rules());
    let log = log(&run);
    let fds: Vec<&str> = log.lines().take_while(|line| *line != "end").filter(|fd| fd.len() == 1).collect();
    assert_eq!(fds, ["0", "1", "2", "3", "5", "6"], "{log}");
    assert!(log.contains("runs/job/lock\n") && log.contains("devices/cpu.lock\n500\n"), "{log}");
    assert!(log.contains("ANNEAL_HOME=") && !log.contains("CARGO_"), "{log}");
    let stat: Vec<&str> = log.lines().find(|line| line.starts_with("stat ")).unwrap().split(' ').collect();
    let (pid, group, session) = (stat[1], stat[6], stat[7]);
    assert_eq!((pid, pid), (group, session), "{log}");
    // It yields to the desktop.
    assert!(stat[20].parse::<i32>().unwrap() >= 5, "{log}");
}

#[test]
fn crashes_are_told_with_signal_and_last_lines_and_end_after_three_restarts() {
    let stage = Stage::new();
    let (status, entries, run) = stage.play("echo 'my last line'; kill -SEGV $$", rules());
    assert_eq!(names(&entries), ["restarted", "restarted", "restarted", "failed"]);
    assert_eq!(entries.iter().map(|e| e.attempt).collect::<Vec<_>>(), [2, 3, 4, 4]);
    let Event::Failed { problem, .. } = &entries[3].event else { panic!("{entries:?}") };
    assert_eq!(problem.code, Code::TrainerDied);
    assert!(problem.what.contains("SIGSEGV") && problem.why.ends_with("my last line"), "{problem}");
    assert_eq!((status, is_gone(&run)), (1, true));
}

#[test]
fn a_restarted_trainer_goes_on_and_the_attempts_are_counted() {
    let script =
        "if [ -e ../second ]; then started 1; step 2; finished 2; else : > ../second; started 0; step 1; exit 7; fi";
    let (status, entries, _) = Stage::new().play(script, rules());
    assert_eq!(names(&entries), ["started", "step", "restarted", "started", "step", "finished"]);
    assert_eq!(entries.iter().map(|e| e.attempt).collect::<Vec<_>>(), [1, 1, 2, 2, 2, 2]);
    assert_eq!(entries.iter().map(|e| e.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(status, 0);
}

#[test]
fn a_silent_trainer_is_killed_with_all_its_children() {
    let limits = Rules { long_phase: Duration::from_millis(600), quiet: Duration::from_millis(600), ..rules() };
    let script = "sleep 601 & echo $! >> pids; trap '' TERM; started 0; sleep 602";
    let stage = Stage::new();
    let (status, entries, run) = stage.play(script, limits);
    let Some(Event::Failed { problem, .. }) = entries.last().map(|e| &e.event) else { panic!("{entries:?}") };
    assert_eq!((problem.code, status), (Code::TrainerHung, 1));
    let pids = std::fs::read_to_string(run.path().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), 4);
    for pid in pids.lines() {
        assert!(store::identity::of_pid(pid.parse().unwrap()).is_none(), "{pid} lives on");
    }
}

#[test]
fn a_trainer_that_ignores_stop_is_ended_in_time() {
    let stage = Stage::new();
    let job = stage.start("job", "trap '' TERM; started 0; step 1; while :; do sleep 1; done", rules());
    job.wait_for("step");
    let asked = Instant::now();
    assert_eq!(job.ask(Request::Stop), Answer::Done);
    let run = job.run.clone();
    assert_eq!(job.end(), 130);
    assert!(asked.elapsed() < Duration::from_secs(5));
    assert_eq!(names(&entries(&run))[2..], ["stopping", "warning", "stopped"]);
    assert!(is_gone(&run));
}

#[test]
fn pause_resume_and_stop_reach_the_trainer() {
    let stage = Stage::new();
    let script = r#"
        started 0; step 1
        await pause; event '{"event":"paused","step":1}'
        await resume; event '{"event":"resumed","step":1}'
        await stop; say '{"message":"leaving","step":1}'"#;
    let job = stage.start("job", script, rules());
    job.wait_for("step");
    for (what, seen) in [(Request::Pause, "paused"), (Request::Resume, "resumed")] {
        assert_eq!(job.ask(what), Answer::Done);
        job.wait_for(seen);
    }
    assert!(matches!(job.ask(Request::Resume), Answer::Refused { .. }));
    assert_eq!(job.ask(Request::Stop), Answer::Done);
    let run = job.run.clone();
    assert_eq!(job.end(), 130);
    assert_eq!(names(&entries(&run))[2..], ["paused", "resumed", "stopping", "stopped"]);
}

#[test]
fn nonsense_on_the_link_and_floods_of_output_do_not_bring_the_supervisor_down() {
    let long = "head -c 200000 /dev/zero | tr '\\0' x >&3; sleep 600";
    let (status, entries, _) = Stage::new().play(long, rules());
    assert_eq!((status, entries.len()), (1, 4));
    let flood = "yes 'many words' | head -c 4000000; head -c 1000000 /dev/urandom; started 0; finished 0";
    let (status, entries, _) = Stage::new().play(flood, rules());
    assert_eq!((status, names(&entries)), (0, vec!["started".to_owned(), "finished".to_owned()]));
}

#[test]
fn another_protocol_fails_with_both_numbers() {
    let stage = Stage::new();
    let path = stage.home.run("job").unwrap();
    std::fs::create_dir_all(&path).unwrap();
    // The greeting of WORDS comes too late to matter.
    let job = stage.start("job", "", rules());
    job.end();
    std::fs::write(path.join("run"), "printf '{\"protocol\":7}\\n' >&3; sleep 600").unwrap();
    let run = RunFolder::open(&path).unwrap();
    let setting = Setting {
        home: stage.home.clone(),
        run: run.clone(),
        trainer: "/bin/sh".into(),
        devices: vec!["cpu".into()],
        rules: rules(),
    };
    assert_eq!(super::run(setting, || ()).unwrap(), 1);
    let entries = entries(&run);
    let Some(Event::Failed { problem, .. }) = entries.last().map(|e| &e.event) else { panic!("{entries:?}") };
    assert_eq!(problem.code, Code::ProtocolMismatch);
    assert!(problem.what.contains('7') && problem.what.contains('1'), "{problem}");
    assert_eq!(entries.last().unwrap().attempt, 5, "four attempts of the first supervisor came before");
}

#[test]
fn a_second_job_waits_for_the_device_and_may_be_stopped_while_it_does() {
    let stage = Stage::new();
    let script = "started 0; step 1; await stop; say '{\"message\":\"leaving\",\"step\":1}'";
    let first = stage.start("first", script, rules());
    first.wait_for("step");
    let (second, third) = (stage.start("second", script, rules()), stage.start("third", script, rules()));
    second.wait_for("queued");
    third.wait_for("queued");
    assert_eq!(third.ask(Request::Stop), Answer::Done);
    let run = third.run.clone();
    assert_eq!(
        (third.end(), names(&entries(&run))),
        (130, ["queued", "stopping", "stopped"].map(String::from).to_vec())
    );
    assert!(!names(&entries(&second.run)).contains(&"started".to_owned()));
    assert_eq!(first.ask(Request::Stop), Answer::Done);
    assert_eq!(first.end(), 130);
    second.wait_for("step");
    assert_eq!(second.ask(Request::Stop), Answer::Done);
    assert_eq!(second.end(), 130);
    let left = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    assert_eq!(left(&stage.home.queue()), 2, "only the lock and the last number stay");
}

#[test]
fn a_run_has_one_supervisor() {
    let stage = Stage::new();
    let job = stage.start("job", "started 0; step 1; await stop; say '{\"message\":\"leaving\",\"step\":1}'", rules());
    job.wait_for("step");
    let setting = Setting {
        home: stage.home.clone(),
        run: job.run.clone(),
        trainer: "/bin/sh".into(),
        devices: vec!["cpu".into()],
        rules: rules(),
    };
    assert_eq!(super::run(setting, || panic!("two at once")).unwrap_err().code, Code::Busy);
    assert_eq!(job.ask(Request::Stop), Answer::Done);
    assert_eq!(job.end(), 130);
}

#[test]
fn fast_metrics_all_arrive_and_in_order() {
    let script = "started 0; i=0; while [ $i -lt 5000 ]; do i=$((i+1)); step $i; done; finished 5000";
    let (status, entries, _) = Stage::new().play(script, rules());
    let steps: Vec<u64> = entries.iter().filter(|e| e.event.is_metric()).map(|e| e.event.step()).collect();
    assert_eq!((status, steps), (0, (1..=5000).collect()));
}
