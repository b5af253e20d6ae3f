//! The history as its users meet it: real run folders, real journals, and a database file that is treated badly.

use super::*;
use protocol::event::Step;
use protocol::record::Labels;
use protocol::view::{Axis, JobSort};
use protocol::{Event, JobSpec};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use store::journal::Writer;

/// A HOME of its own, gone with the value.
struct Place {
    _dir: tempfile::TempDir,
    home: Home,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        Place { _dir: dir, home }
    }

    fn open(&self) -> History {
        let (history, notices) = History::open(&self.home).unwrap();
        assert_eq!(notices, []);
        history
    }

    /// A run folder whose spec has these changes, with a journal that can be written.
    fn run(&self, id: &str, changes: &[&str]) -> Run {
        let changes: Vec<String> = changes.iter().map(|c| c.to_string()).collect();
        let spec = JobSpec::parse(JOB, &changes, Path::new("/data")).unwrap();
        let mut plan: Plan = serde_json::from_str(PLAN).unwrap();
        plan.run.seed = spec.run.seed;
        let folder = RunFolder::create(&self.home, id, &spec, &plan, &Labels::default()).unwrap();
        let journal = Writer::open(&folder.journal(), id).unwrap();
        Run { folder, journal, at_ms: 1_000_000 }
    }

    fn damaged(&self) -> usize {
        let names = fs::read_dir(self.home.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("history-damaged-")).count()
    }
}

struct Run {
    folder: RunFolder,
    journal: Writer,
    at_ms: i64,
}

impl Run {
    fn say(&mut self, attempt: u32, event: Event) -> &mut Run {
        self.at_ms += 1000;
        self.journal.append(attempt, self.at_ms, event).unwrap();
        self.journal.flush().unwrap();
        self
    }

    fn steps(&mut self, attempt: u32, from: u64, to: u64) -> &mut Run {
        for n in from..=to {
            self.at_ms += 10;
            self.journal.append(attempt, self.at_ms, step(n, attempt)).unwrap();
        }
        self.journal.flush().unwrap();
        self
    }

    fn start(&mut self) -> &mut Run {
        self.say(1, Event::Started { step: 0, steps_total: 1000 })
    }

    fn finish(&mut self, step: u64) {
        self.say(1, Event::Finished { step, loss: 1.0, memory: Default::default() });
    }
}

fn step(n: u64, attempt: u32) -> Event {
    let loss = 5.0 / (n as f64).sqrt() + f64::from(attempt) * 1e-3;
    Event::Step(Step {
        step: n,
        loss,
        grad_norm: 1.0 / (n as f64),
        learning_rate: 1e-4,
        targets: 100 + n % 7,
        tokens: n * 128,
        epoch: n as f64 / 100.0,
        step_ms: 12.5,
        tokens_per_second: 1e4 + n as f64,
    })
}

fn evaluation(step: u64) -> Event {
    let loss = 4.0 / step as f64;
    Event::Evaluation { step, loss, perplexity: loss.exp(), tokens: 512 }
}

fn rows(history: &mut History, id: &str) -> Vec<MetricRow> {
    let mut rows = Vec::new();
    history
        .metrics(id, &mut |row| {
            rows.push(row.clone());
            Ok(())
        })
        .unwrap();
    rows
}

fn row_steps(history: &mut History, id: &str) -> Vec<u64> {
    rows(history, id).iter().map(|row| row.step.step).collect()
}

/// Everything that can be asked.
fn answers(history: &mut History) -> Value {
    let list = history.jobs(None).unwrap();
    let ids: Vec<String> = list.iter().map(|row| row.id.clone()).collect();
    let records: Vec<JobRecord> = ids.iter().map(|id| history.job(id).unwrap()).collect();
    let metrics: Vec<Vec<MetricRow>> = ids.iter().map(|id| rows(history, id)).collect();
    let comparison = history.compare(&ids[0], &ids[1]).unwrap();
    let search = history.jobs(Some("seed>=2 state:finished")).unwrap();
    let query = CurveQuery { points: 50, ..CurveQuery::default() };
    let curves: Vec<Curve> = ids.iter().map(|id| history.curve(id, &query).unwrap()).collect();
    json!([list, records, metrics, comparison, search, curves])
}

/// Three jobs: one that finished with evaluations, one restarted, one whose supervisor is gone.
fn three_jobs(place: &Place) {
    place
        .run("a-finished", &["run.seed=2"])
        .start()
        .steps(1, 1, 300)
        .say(1, evaluation(100))
        .say(1, evaluation(300))
        .finish(300);
    let why = Problem::new(Code::TrainerDied, "the trainer was killed");
    let mut restarted = place.run("b-restarted", &["run.seed=3", "name=\"again\""]);
    restarted.start().steps(1, 1, 200).say(1, Event::Restarted { step: 150, why });
    restarted
        .say(2, Event::Started { step: 150, steps_total: 1000 })
        .steps(2, 151, 260)
        .say(2, Event::Stopped { step: 260 });
    place.run("c-lost", &[]).start().steps(1, 1, 50);
}

#[test]
fn jobs_are_listed_newest_first_with_their_numbers() {
    let place = Place::new();
    three_jobs(&place);
    let mut history = place.open();
    let list = history.jobs(None).unwrap();
    assert_eq!(list.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["c-lost", "b-restarted", "a-finished"]);
    let finished = &list[2];
    assert_eq!((finished.state, finished.steps, finished.steps_total), (JobState::Finished, 300, 1000));
    assert_eq!(
        (finished.model.as_str(), finished.data.as_str(), finished.stage.as_str()),
        ("tiny", "rows.jsonl", "sft")
    );
    assert_eq!((finished.name.as_str(), list[1].name.as_str()), ("tiny on rows.jsonl", "again"));
    assert_eq!((finished.best_evaluation_loss, finished.tokens), (Some(4.0 / 300.0), 300 * 128));
    let record = history.job("b-re").unwrap();
    assert_eq!((record.attempts, record.exit_reason.as_deref()), (2, Some("stopped by the user")));
    assert_eq!(record.fingerprints.data, "data-hash");
    for (search, found) in [("again", 1), ("seed>=2", 2), ("state:finished loss<2", 1), ("nothing like it", 0)] {
        assert_eq!(history.jobs(Some(search)).unwrap().len(), found, "{search}");
    }
}

#[test]
fn of_two_attempts_at_a_step_the_later_one_is_shown_and_no_step_is_missing() {
    let place = Place::new();
    let mut run = place.run("job", &[]);
    run.start().steps(1, 1, 150);
    let mut history = place.open();
    // Steps sent again after the restart come before those that follow, and one of the first attempt comes late.
    run.say(2, Event::Started { step: 100, steps_total: 1000 }).steps(2, 98, 120).steps(1, 99, 99);
    history.ingest().unwrap();
    let rows = rows(&mut history, "job");
    let attempts: Vec<u32> = rows.iter().map(|row| row.attempt).collect();
    assert_eq!(rows.iter().map(|row| row.step.step).collect::<Vec<_>>(), (1..=150).collect::<Vec<_>>());
    assert_eq!((attempts[96], attempts[97], attempts[98], attempts[119], attempts[120]), (1, 2, 2, 2, 1));
    assert_eq!(history.jobs(None).unwrap()[0].steps, 120);
}

#[test]
fn a_job_whose_supervisor_is_gone_is_interrupted_and_can_be_resumed() {
    let place = Place::new();
    let mut run = place.run("job", &[]);
    run.start().steps(1, 1, 5);
    let held = store::lock::try_lock(&run.folder.lock()).unwrap().unwrap();
    let mut history = place.open();
    assert_eq!(history.job("job").unwrap().row.state, JobState::Running);
    assert_eq!(history.job("job").unwrap().exit_reason, None);
    drop(held);
    let record = history.job("job").unwrap();
    assert_eq!((record.row.state, record.exit_reason.as_deref()), (JobState::Interrupted, Some("supervisor lost")));
    assert!(record.problem.unwrap().remedy.contains("anneal resume job"));
}

#[test]
fn what_comes_in_later_is_seen_and_an_evaluation_stands_beside_its_step() {
    let place = Place::new();
    let mut history = place.open();
    assert_eq!(history.jobs(None).unwrap(), []);
    let mut run = place.run("job", &[]);
    for n in 1..=20 {
        run.steps(1, n, n);
        history.ingest().unwrap();
        assert_eq!(row_steps(&mut history, "job"), (1..=n).collect::<Vec<_>>());
    }
    run.say(1, evaluation(20));
    run.folder.change_labels(|labels| labels.tags = vec!["best".into()]).unwrap();
    history.ingest().unwrap();
    let rows = rows(&mut history, "job");
    assert_eq!((rows[18].evaluation_loss, rows[19].evaluation_loss), (None, Some(0.2)));
    assert_eq!(history.jobs(Some("tag:best")).unwrap().len(), 1);
}

#[test]
fn a_deleted_history_gives_the_same_answers_again() {
    let place = Place::new();
    three_jobs(&place);
    let before = answers(&mut place.open());
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", place.home.history().display()));
    }
    assert_eq!(answers(&mut place.open()), before);
    let mut open = place.open();
    fs::remove_file(place.home.history()).unwrap();
    open.ingest().unwrap();
    assert_eq!(answers(&mut open), before, "deleted while it was open");
    assert!(place.home.history().exists());
}

/// Deterministic numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

#[test]
fn a_hundred_overwritten_ranges_never_change_an_answer() {
    let place = Place::new();
    three_jobs(&place);
    let before = answers(&mut place.open());
    let whole = fs::read(place.home.history()).unwrap();
    let (mut dice, mut said) = (Dice(17), 0);
    for round in 0..100 {
        let mut damaged = whole.clone();
        let length = 1 + dice.below([8, 64, 512, 9000][round % 4]) as usize;
        let at = dice.below((whole.len() - 1) as u64) as usize;
        let end = (at + length).min(whole.len());
        damaged[at..end].iter_mut().for_each(|byte| *byte = if round % 3 == 0 { 0 } else { dice.below(256) as u8 });
        fs::write(place.home.history(), &damaged).unwrap();
        let (mut history, mut notices) = History::open(&place.home).unwrap();
        assert!(answers(&mut history) == before, "round {round}: {length} bytes at {at} of {}", whole.len());
        notices.extend(history.ingest().unwrap());
        said += notices.iter().filter(|notice| notice.code == Code::HistoryRebuilt).count();
        drop(history);
        assert_eq!(place.damaged(), said, "round {round}: what was damaged is kept aside, and said");
    }
    assert!(said > 30, "only {said} of 100 were found");
    println!("{said} of 100 ranges mattered");
}

#[test]
fn one_wrong_number_in_a_sound_page_is_found() {
    let place = Place::new();
    three_jobs(&place);
    let before = answers(&mut place.open());
    let bytes = fs::read(place.home.history()).unwrap();
    let needle = (5.0 / 123f64.sqrt() + 1e-3).to_le_bytes();
    let at = bytes.windows(8).position(|window| window == needle).unwrap();
    let file = fs::OpenOptions::new().write(true).open(place.home.history()).unwrap();
    file.write_all_at(&0.25f64.to_le_bytes(), at as u64).unwrap();
    let mut history = place.open();
    assert_eq!(answers(&mut history), before);
    assert_eq!(history.ingest().unwrap()[0].code, Code::HistoryRebuilt);
    assert_eq!(history.ingest().unwrap(), [], "said once");
    assert_eq!(place.damaged(), 1);
}

#[test]
fn a_file_that_is_no_database_is_kept_aside_and_said() {
    let place = Place::new();
    three_jobs(&place);
    let before = answers(&mut place.open());
    for garbage in [vec![0u8; 5000], b"SQLite format 3\0 and then nothing of the kind".to_vec()] {
        fs::write(place.home.history(), garbage).unwrap();
        let (mut history, notices) = History::open(&place.home).unwrap();
        assert_eq!(notices.iter().map(|notice| notice.code).collect::<Vec<_>>(), [Code::HistoryRebuilt]);
        assert!(notices[0].place.file.as_ref().unwrap().contains("history-damaged-"));
        assert_eq!(answers(&mut history), before);
    }
    assert_eq!(place.damaged(), 2);
}

#[test]
fn a_journal_that_was_replaced_or_shortened_is_read_anew() {
    let place = Place::new();
    place.run("job", &[]).start().steps(1, 1, 100);
    let mut history = place.open();
    let journal = place.home.run("job").unwrap().join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let shorter: String = text.lines().take(41).map(|line| format!("{line}\n")).collect();
    fs::write(&journal, &shorter).unwrap();
    history.ingest().unwrap();
    assert_eq!(row_steps(&mut history, "job"), (1..=40).collect::<Vec<_>>());
    let moved = journal.with_extension("other");
    fs::write(&moved, &text).unwrap();
    fs::rename(&moved, &journal).unwrap();
    history.ingest().unwrap();
    assert_eq!(row_steps(&mut history, "job"), (1..=100).collect::<Vec<_>>());
}

#[test]
fn a_damaged_line_costs_that_line_and_is_said_once() {
    let place = Place::new();
    place.run("job", &[]).start().steps(1, 1, 20);
    let journal = place.home.run("job").unwrap().join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap().replacen("\"step\":7,", "\"step\":8,", 1);
    fs::write(&journal, text).unwrap();
    let (mut history, notices) = History::open(&place.home).unwrap();
    assert_eq!((notices.len(), notices[0].code), (1, Code::FileMalformed));
    assert_eq!(row_steps(&mut history, "job"), (1..=20).filter(|n| *n != 7).collect::<Vec<_>>());
    assert_eq!(history.ingest().unwrap(), []);
}

#[test]
fn a_job_with_an_unreadable_plan_is_listed_and_named() {
    let place = Place::new();
    place.run("job", &[]).start().steps(1, 1, 3);
    fs::write(place.home.run("job").unwrap().join("plan.json"), "{").unwrap();
    let (mut history, notices) = History::open(&place.home).unwrap();
    assert!(notices.iter().any(|notice| notice.place.file.as_ref().is_some_and(|f| f.ends_with("plan.json"))));
    assert_eq!(history.jobs(None).unwrap()[0].steps, 3);
    assert_eq!(row_steps(&mut history, "job").len(), 3);
    assert_eq!(history.job("job").unwrap_err().code, Code::FileMalformed);
}

#[test]
fn a_job_whose_file_was_spoilt_keeps_its_row_and_its_plan() {
    let place = Place::new();
    let mut run = place.run("job", &["name=\"mine\""]);
    run.start().steps(1, 1, 3);
    let mut history = place.open();
    let before = history.jobs(None).unwrap();
    fs::write(place.home.run("job").unwrap().join("job.toml"), "]] garbage").unwrap();
    // The journal gains a line, so that the folder is looked at again.
    run.steps(1, 4, 4);
    let notices = history.ingest().unwrap();
    assert!(notices.iter().any(|notice| notice.place.file.as_ref().is_some_and(|f| f.ends_with("job.toml"))));
    let texts = |row: &JobRow| [&row.name, &row.model, &row.data, &row.stage].map(String::clone);
    assert_eq!(texts(&history.jobs(None).unwrap()[0]), texts(&before[0]));
    let record = history.job("job").unwrap();
    assert_eq!((record.spec, record.damage.map(|p| p.code)), (None, Some(Code::JobInvalid)));
    assert_eq!(record.plan, serde_json::from_str(PLAN).unwrap());
    assert!(history.compare("job", "job").is_err());
    // An index built from nothing knows what the plan says.
    fs::remove_file(place.home.path().join("history.sqlite3")).unwrap();
    let row = History::open(&place.home).unwrap().0.jobs(None).unwrap().remove(0);
    assert_eq!(row.stage, before[0].stage);
    assert!(!row.model.is_empty());
}

#[test]
fn a_job_is_found_by_any_beginning_that_only_it_has() {
    let place = Place::new();
    ["job-1", "job-12", "other"].iter().for_each(|id| drop(place.run(id, &[])));
    let mut history = place.open();
    for (given, found) in [("o", "other"), ("job-12", "job-12"), ("job-1", "job-1")] {
        assert_eq!(history.find(given).unwrap(), found);
    }
    for missing in ["", "job", "x", "other2", "%", "oth_r"] {
        assert_eq!(history.find(missing).unwrap_err().code, Code::NotFound, "{missing}");
    }
}

#[test]
fn a_deleted_job_comes_back_whole_and_a_living_one_is_not_deleted() {
    let place = Place::new();
    three_jobs(&place);
    let mut history = place.open();
    let before = answers(&mut history);
    let held = store::lock::try_lock(&place.home.run("c-lost").unwrap().join("lock")).unwrap();
    let refused = history.delete("c-lost").unwrap_err();
    assert_eq!(refused.code, Code::WrongState);
    assert!(refused.remedy.contains("stop"), "{refused}");
    drop(held);
    assert_eq!(history.delete("c-l").unwrap(), "c-lost");
    let twice = history.delete("c-lost").unwrap_err();
    assert!(twice.code == Code::WrongState && twice.what.contains("already in the trash"), "{twice}");
    assert_eq!(history.jobs(None).unwrap().len(), 2);
    assert_eq!(history.job("c-lost").unwrap_err().code, Code::NotFound);
    history.restore("c-lost").unwrap();
    assert_eq!(answers(&mut history), before);
    history.delete("c-lost").unwrap();
    history.free("c-lost").unwrap();
    assert_eq!(history.restore("c-lost").unwrap_err().code, Code::NotFound);
}

#[test]
fn a_step_that_was_left_out_is_a_row_without_loss_and_a_gap_in_the_curve() {
    let place = Place::new();
    let mut run = place.run("nan", &[]);
    let skipped = |step| Event::Skipped { step, problem: Problem::new(Code::NotFinite, "the loss is NaN") };
    run.start().steps(1, 1, 3).say(1, skipped(4)).steps(1, 5, 6).say(1, skipped(7));
    let mut history = place.open();
    let all = rows(&mut history, "nan");
    assert_eq!(all.iter().map(|row| row.step.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    assert!(all[3].step.loss.is_nan() && all[3].step.grad_norm.is_nan());
    assert_eq!((all[3].step.tokens, all[3].step.epoch), (all[2].step.tokens, all[2].step.epoch));
    let text = serde_json::to_string(&all[3]).unwrap();
    assert!(text.contains("\"loss\":null") && text.contains("\"grad_norm\":null"), "{text}");
    let back: MetricRow = serde_json::from_str(&text).unwrap();
    assert!(back.step.loss.is_nan() && back.step.step == 4);
    // An attempt that made the step fills the gap; a late word of a lower attempt does not bring it back.
    run.steps(2, 4, 4).say(1, skipped(4));
    history.ingest().unwrap();
    assert!(rows(&mut history, "nan")[3].step.loss.is_finite());
    drop(history);
    let shown = |history: &mut History| format!("{:?}", rows(history, "nan"));
    let before = shown(&mut place.open());
    std::fs::remove_file(place.home.history()).unwrap();
    assert_eq!(shown(&mut place.open()), before);
}

#[test]
fn two_jobs_are_compared_by_what_differs() {
    let place = Place::new();
    three_jobs(&place);
    let comparison = place.open().compare("a-f", "b-r").unwrap();
    let keys: Vec<&str> = comparison.spec.iter().map(|d| d.key.as_str()).collect();
    assert_eq!(keys, ["name", "run.seed"]);
    assert_eq!((comparison.data.len(), comparison.model.len()), (0, 0));
    assert_eq!((comparison.curve_a.len(), comparison.curve_b.len()), (300, 260));
}

#[test]
fn a_steady_stream_of_ten_thousand_rows_a_second_is_readable_at_once() {
    const TICKS: u64 = 20;
    const ROWS_A_TICK: u64 = 1000;
    let place = Place::new();
    let mut run = place.run("job", &[]);
    run.start();
    let mut history = place.open();
    let (written, flushed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let mut longest = Duration::ZERO;
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            for tick in 0..TICKS {
                run.steps(1, tick * ROWS_A_TICK + 1, (tick + 1) * ROWS_A_TICK);
                flushed.lock().unwrap().push(((tick + 1) * ROWS_A_TICK, Instant::now()));
                written.store((tick + 1) * ROWS_A_TICK, Ordering::Release);
                thread::sleep(
                    (start + Duration::from_millis(100 * (tick + 1))).saturating_duration_since(Instant::now()),
                );
            }
        });
        let mut seen = 0;
        while seen < TICKS * ROWS_A_TICK {
            history.ingest().unwrap();
            seen = history.jobs(None).unwrap()[0].steps;
            let mut waiting = flushed.lock().unwrap();
            waiting.iter().filter(|(n, _)| *n <= seen).for_each(|(_, at)| longest = longest.max(at.elapsed()));
            waiting.retain(|(n, _)| *n > seen);
            assert!(longest < Duration::from_secs(20), "a row was readable only after {longest:?}");
            drop(waiting);
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(row_steps(&mut history, "job"), (1..=written.into_inner()).collect::<Vec<_>>());
    println!("{} rows at 10,000 a second: each readable within {longest:?}", TICKS * ROWS_A_TICK);
}

#[test]
fn a_burst_of_half_a_million_rows_is_taken_in_whole() {
    const ROWS: u64 = 500_000;
    let place = Place::new();
    place.run("job", &[]).start().steps(1, 1, ROWS);
    let start = Instant::now();
    let mut history = place.open();
    let ingested = start.elapsed();
    let (mut next, mut sum) = (1, 0.0);
    history
        .metrics("job", &mut |row| {
            assert_eq!(row.step.step, next);
            (next, sum) = (next + 1, sum + row.step.loss);
            Ok(())
        })
        .unwrap();
    assert_eq!(next, ROWS + 1);
    assert!(ingested < Duration::from_secs(120), "{ingested:?}");
    println!("{ROWS} rows in {ingested:?}, read again in {:?}", start.elapsed() - ingested);
}

#[test]
fn two_histories_that_ingest_at_once_double_nothing() {
    const ROWS: u64 = 20_000;
    let place = Place::new();
    let mut run = place.run("job", &[]);
    run.start();
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for tick in 0..20 {
                run.steps(1, tick * ROWS / 20 + 1, (tick + 1) * ROWS / 20);
                thread::sleep(Duration::from_millis(10));
            }
            written.store(ROWS, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut history = place.open();
                while written.load(Ordering::Acquire) < ROWS {
                    history.ingest().unwrap();
                    let steps = row_steps(&mut history, "job");
                    assert_eq!(steps, (1..=steps.len() as u64).collect::<Vec<_>>());
                }
            });
        }
    });
    let mut history = place.open();
    assert_eq!(row_steps(&mut history, "job"), (1..=ROWS).collect::<Vec<_>>());
    assert_eq!(place.damaged(), 0);
}

/// The child of the test below, where that test names a HOME: it ingests until it is killed.
#[test]
fn ingest_until_killed() {
    let Some(home) = std::env::var_os("HISTORY_TEST_HOME") else { return };
    let home = Home::open(Path::new(&home)).unwrap();
    loop {
        let _ = History::open(&home).unwrap().0.ingest();
    }
}

#[test]
fn an_engine_killed_while_it_ingests_loses_and_doubles_nothing() {
    let place = Place::new();
    let mut run = place.run("job", &[]);
    let (mut dice, mut written) = (Dice(5), 0);
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "history::tests::ingest_until_killed"])
            .env("HISTORY_TEST_HOME", place.home.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        run.steps(1 + round, written + 1, written + 5000);
        written += 5000;
        thread::sleep(Duration::from_millis(dice.below(120)));
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 4 == 3 {
            let mut history = place.open();
            assert_eq!(row_steps(&mut history, "job"), (1..=written).collect::<Vec<_>>());
            let sound: String = history.database.db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(sound, "ok");
        }
    }
    assert_eq!(place.damaged(), 0);
}

/// The same curve from all rows of `metrics`, the plain way.
fn plain_curve(rows: &[MetricRow], query: &CurveQuery) -> Curve {
    let origin_ms = rows.first().map_or(0.0, |row| row.at_ms as f64 - row.step.step_ms);
    let place = |row: &MetricRow| match query.axis {
        Axis::Step => row.step.step as f64,
        Axis::Seconds => (row.at_ms as f64 - origin_ms) / 1000.0,
        Axis::Tokens => row.step.tokens as f64,
    };
    let mut ordered: Vec<(f64, &Step)> = Vec::new();
    for row in rows {
        let before = ordered.last().map_or(f64::NEG_INFINITY, |(x, _)| *x);
        ordered.push((before.max(place(row)), &row.step));
    }
    // Where a block a point is more than half of what was asked for, blocks of 256 steps are what is put together.
    let spans =
        ordered.chunk_by(|a, b| a.1.step / 256 == b.1.step / 256).map(|rows| (rows[0].0, rows[rows.len() - 1].0));
    let is_behind = |x: f64| query.to.is_some_and(|to| x > to);
    let is_before = |x: f64| query.from.is_some_and(|from| x < from);
    let blocks = spans.filter(|(first, last)| !is_before(*last) && !is_behind(*first)).count();
    let points = query.points.max(1) as usize;
    let is_coarse = blocks * 2 > points;
    ordered.retain(|(x, _)| !is_before(*x) && !is_behind(*x));
    let units: Vec<_> = ordered.chunk_by(|a, b| is_coarse && a.1.step / 256 == b.1.step / 256).collect();
    let mut size = 1;
    while units.len().div_ceil(size) > points {
        size *= 2;
    }
    let mut curve = Curve { rows: ordered.len() as u64, ..Curve::default() };
    for bucket in units.chunks(size).map(|units| units.concat()) {
        let (x, last) = bucket[bucket.len() - 1];
        let finite: Vec<f64> = bucket.iter().map(|(_, step)| step.loss).filter(|loss| loss.is_finite()).collect();
        curve.x.push(x);
        curve.step.push(last.step);
        curve.loss.push(Some(last.loss).filter(|loss| loss.is_finite()));
        curve.loss_min.push(finite.iter().copied().reduce(f64::min));
        curve.loss_max.push(finite.iter().copied().reduce(f64::max));
        curve.grad_norm.push(Some(last.grad_norm));
        curve.learning_rate.push(Some(last.learning_rate));
        curve.tokens_per_second.push(Some(last.tokens_per_second));
    }
    curve
}

#[test]
fn a_curve_has_the_points_of_a_plain_loop_over_all_metrics() {
    let place = Place::new();
    let mut run = place.run("job", &[]);
    run.start().steps(1, 1, 700);
    // A second attempt, and a clock that was set back.
    run.say(2, Event::Started { step: 400, steps_total: 1000 });
    run.at_ms -= 3000;
    run.steps(2, 401, 1500);
    let mut history = place.open();
    let rows = rows(&mut history, "job");
    let ranges = [(None, None), (Some(3.0), Some(1400.5)), (Some(900.0), None), (None, Some(10.0)), (Some(1e9), None)];
    for axis in [Axis::Step, Axis::Seconds, Axis::Tokens] {
        for (from, to) in ranges {
            for points in [0, 1, 2, 3, 7, 100, 1499, 1500, 4096] {
                let query = CurveQuery { axis, from, to, points };
                let curve = Curve { marks: Vec::new(), ..history.curve("job", &query).unwrap() };
                assert_eq!(curve, plain_curve(&rows, &query), "{query:?}");
                assert!(curve.x.is_sorted());
            }
        }
    }
}

#[test]
fn a_curve_keeps_its_newest_step_and_every_extreme_however_few_its_points() {
    let place = Place::new();
    let mut run = place.run("job", &[]);
    run.start();
    let mut history = place.open();
    for n in 1..=300 {
        run.steps(1, n * 3 - 2, n * 3);
        history.ingest().unwrap();
        let all = rows(&mut history, "job");
        let query = CurveQuery { points: 10, ..CurveQuery::default() };
        let curve = history.curve("job", &query).unwrap();
        assert!(curve.x.len() <= 10 && (n < 10 || curve.x.len() >= 5), "{} points", curve.x.len());
        assert_eq!((curve.step.last(), curve.rows), (Some(&(n * 3)), n * 3));
        let losses = all.iter().map(|row| row.step.loss);
        let most = |of: &[Option<f64>]| of.iter().flatten().copied().reduce(f64::max);
        assert_eq!(most(&curve.loss_max), losses.clone().reduce(f64::max));
        assert_eq!(curve.loss_min.iter().flatten().copied().reduce(f64::min), losses.reduce(f64::min));
    }
}

#[test]
fn evaluations_and_marks_stand_at_their_place_on_every_axis() {
    let place = Place::new();
    three_jobs(&place);
    let mut history = place.open();
    let all = |axis| CurveQuery { axis, points: 4096, ..CurveQuery::default() };
    let curve = history.curve("a-finished", &all(Axis::Tokens)).unwrap();
    let points: Vec<(f64, u64)> = curve.evaluations.iter().map(|e| (e.x, e.step)).collect();
    assert_eq!(points, [(100.0 * 128.0, 100), (300.0 * 128.0, 300)]);
    assert_eq!(curve.evaluations[0].loss, Some(0.04));
    let curve = history.curve("b-restarted", &all(Axis::Step)).unwrap();
    let kinds: Vec<(&str, f64)> = curve.marks.iter().map(|m| (m.kind.as_str(), m.x)).collect();
    assert_eq!(kinds, [("started", 0.0), ("restarted", 150.0), ("started", 150.0), ("stopped", 260.0)]);
    assert_eq!(curve.marks[1].problem.as_ref().map(|p| p.code), Some(Code::TrainerDied));
    let part = CurveQuery { from: Some(100.0), to: Some(200.0), ..all(Axis::Step) };
    let part = history.curve("b-restarted", &part).unwrap();
    assert_eq!((part.marks.len(), part.rows, part.x[0]), (2, 101, 100.0));
    let seconds = history.curve("b-restarted", &all(Axis::Seconds)).unwrap();
    assert!(seconds.marks[3].x > seconds.marks[1].x && seconds.marks[1].x > *seconds.x.first().unwrap());
    // Between two points a mark stands in proportion.
    let coarse = CurveQuery { points: 2, ..all(Axis::Tokens) };
    let coarse = history.curve("b-restarted", &coarse).unwrap();
    assert_eq!(coarse.marks.iter().map(|m| m.x).collect::<Vec<_>>(), [0.0, 19_200.0, 19_200.0, 33_280.0]);
}

#[test]
fn of_too_many_marks_the_weightiest_stay() {
    let place = Place::new();
    let mut run = place.run("job", &[]);
    run.start();
    for n in 1..=5000 {
        run.journal.append(1, n, Event::Snapshot { step: n as u64 }).unwrap();
    }
    run.say(1, Event::Stopped { step: 5000 });
    let curve = place.open().curve("job", &CurveQuery { points: 10, ..CurveQuery::default() }).unwrap();
    assert_eq!(curve.marks.len(), protocol::limits::CURVE_POINTS as usize);
    assert_eq!((curve.marks[0].kind.as_str(), curve.marks.last().unwrap().kind.as_str()), ("started", "stopped"));
    assert_eq!((curve.marks[1].step, curve.rows, curve.x.len()), (5000 - 4094 + 1, 0, 0));
}

#[test]
fn pages_hold_each_job_once_in_the_order_asked_for() {
    let place = Place::new();
    for n in 0..7u64 {
        let mut run = place.run(&format!("job-{n}"), &[&format!("name=\"N{}\"", n * 3 % 7)]);
        run.at_ms += n as i64 * 100_000;
        if n != 3 {
            run.start().steps(1, 1, 1 + n * 5 % 7);
        }
    }
    let mut history = place.open();
    let query = |sort, descending| JobQuery { search: String::new(), sort, descending, offset: 0, count: 3 };
    for sort in [JobSort::Created, JobSort::Name, JobSort::FinalLoss, JobSort::Tokens, JobSort::State, JobSort::Model] {
        let mut both = [false, true].map(|descending| {
            let page = |offset| history.page(&JobQuery { offset, ..query(sort, descending) }).unwrap();
            let pages: Vec<JobPage> = [0, 3, 6, 9].map(page).into();
            assert_eq!(
                pages.iter().map(|p| (p.total, p.rows.len())).collect::<Vec<_>>(),
                [(7, 3), (7, 3), (7, 1), (7, 0)]
            );
            pages.into_iter().flat_map(|page| page.rows).collect::<Vec<JobRow>>()
        });
        for rows in &both {
            let mut ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
            ids.sort_unstable();
            assert!(ids.iter().enumerate().all(|(n, id)| *id == format!("job-{n}")), "{sort:?}");
        }
        match sort {
            JobSort::Name => assert!(both[0].is_sorted_by_key(|row| row.name.clone())),
            JobSort::Tokens => assert!(both[0].is_sorted_by_key(|row| row.tokens)),
            JobSort::FinalLoss => assert!(both.iter().all(|rows| rows[6].id == "job-3"), "without a loss: last"),
            JobSort::Created => {
                assert_eq!(both[1], history.jobs(None).unwrap());
                both[1].reverse();
                assert_eq!(both[0], both[1]);
            }
            _ => {}
        }
    }
    let found = history.page(&JobQuery { search: "n2".into(), ..query(JobSort::Name, false) }).unwrap();
    assert_eq!((found.total, found.rows[0].name.as_str()), (1, "N2"));
}

#[test]
fn the_living_are_seen_to_go_on_to_end_and_to_be_joined_by_others() {
    let place = Place::new();
    let mut run = place.run("job", &[]);
    run.start();
    let held = store::lock::try_lock(&run.folder.lock()).unwrap().unwrap();
    place.run("done", &[]).start().steps(1, 1, 3).finish(3);
    let mut history = place.open();
    let told = |history: &mut History| {
        history.alive().unwrap().iter().map(|row| (row.id.clone(), row.steps)).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut history), [("job".into(), 0)]);
    run.steps(1, 1, 5);
    assert_eq!(told(&mut history), [("job".into(), 5)]);
    let mut other = place.run("other", &[]);
    let other_held = store::lock::try_lock(&other.folder.lock()).unwrap().unwrap();
    other.start().steps(1, 1, 2);
    assert_eq!(told(&mut history), [("other".into(), 2), ("job".into(), 5)]);
    run.finish(5);
    assert_eq!(told(&mut history), [("other".into(), 2)]);
    // Once no job was made or started for a while, only the living are looked at.
    for folder in [place.home.runs(), place.home.queue()] {
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(60);
        fs::File::open(folder).unwrap().set_modified(long_ago).unwrap();
    }
    history.ingest().unwrap();
    assert!(!history.watched.changed(&place.home));
    other.steps(1, 3, 8);
    assert_eq!(told(&mut history), [("other".into(), 8)]);
    fs::write(place.home.queue().join("00000001"), "").unwrap();
    assert!(history.watched.changed(&place.home), "a job is started again");
    drop((held, other_held));
    assert_eq!(told(&mut history), []);
}

#[test]
fn what_another_engine_adds_changes_and_removes_is_seen_without_reading() {
    let place = Place::new();
    let (mut first, mut second) = (place.open(), place.open());
    let mut run = place.run("job", &[]);
    run.start();
    place.run("short-lived", &[]).start().finish(0);
    second.ingest().unwrap();
    assert_eq!(first.jobs(None).unwrap(), second.jobs(None).unwrap());
    assert_eq!(first.jobs(None).unwrap().len(), 2);
    run.steps(1, 1, 9);
    second.ingest().unwrap();
    assert_eq!(first.find("jo").unwrap(), "job");
    assert_eq!(
        first
            .page(&JobQuery { search: "steps=9".into(), sort: JobSort::Name, descending: false, offset: 0, count: 9 })
            .unwrap()
            .total,
        1
    );
    second.delete("short-lived").unwrap();
    assert_eq!(first.jobs(None).unwrap().len(), 1);
}

#[test]
fn a_second_history_answers_as_the_first_does_and_both_see_what_comes() {
    let place = Place::new();
    three_jobs(&place);
    let mut first = place.open();
    let before = answers(&mut first);
    let mut second = first.another().unwrap();
    assert_eq!(answers(&mut second), before);
    place.run("d-new", &["run.seed=77"]).start().steps(1, 1, 5).finish(5);
    second.look().unwrap();
    for history in [&mut first, &mut second] {
        assert_eq!(history.jobs(None).unwrap().len(), 4);
        assert_eq!(history.jobs(Some("seed=77")).unwrap().len(), 1);
    }
    first.delete("d-new").unwrap();
    assert_eq!(second.jobs(Some("seed>0")).unwrap().len(), 3);
    fs::remove_file(place.home.history()).unwrap();
    assert_eq!(answers(&mut first.another().unwrap()), before);
}

#[test]
fn a_look_at_one_job_reads_what_its_folder_has_gained() {
    let place = Place::new();
    let mut run = place.run("job", &[]);
    run.start().steps(1, 1, 5).finish(5);
    let mut history = place.open();
    run.folder.change_labels(|labels| labels.name = Some("renamed".into())).unwrap();
    history.look_at("jo").unwrap();
    assert_eq!(history.job("job").unwrap().row.name, "renamed");
    history.look_at("none").unwrap();
}

#[test]
fn settings_that_were_changed_in_the_file_are_found() {
    let place = Place::new();
    three_jobs(&place);
    let before = place.open().jobs(Some("seed>=2")).unwrap();
    let db = rusqlite::Connection::open(place.home.history()).unwrap();
    db.execute("UPDATE settings SET text = replace(text, '\"run.seed\":2', '\"run.seed\":1')", []).unwrap();
    drop(db);
    let mut history = place.open();
    assert_eq!(history.jobs(Some("seed>=2")).unwrap(), before);
    assert_eq!(place.damaged(), 1);
}

#[test]
fn a_plan_that_was_mended_is_read_again() {
    let place = Place::new();
    place.run("job", &[]).start();
    let plan = place.home.run("job").unwrap().join("plan.json");
    let whole = fs::read(&plan).unwrap();
    fs::write(&plan, "{").unwrap();
    let (mut history, notices) = History::open(&place.home).unwrap();
    assert_eq!(notices.len(), 1);
    fs::write(&plan, whole).unwrap();
    assert_eq!(history.ingest().unwrap(), []);
    assert_eq!(history.jobs(Some("global_batch=4")).unwrap().len(), 1);
}

#[test]
fn a_history_of_version_1_gives_the_same_answers_after_the_migration() {
    let place = Place::new();
    three_jobs(&place);
    let before = answers(&mut place.open());
    fs::remove_file(place.home.history()).unwrap();
    database::make_version_1(place.home.path());
    assert_eq!(answers(&mut place.open()), before);
    assert!(place.home.path().join("history-version-1.sqlite3").exists());
}

const JOB: &str = "stage = \"sft\"\n[model]\npath = \"tiny\"\n[data]\ntrain = [\"rows.jsonl\"]\n";

const PLAN: &str = include_str!("example_plan.json");
