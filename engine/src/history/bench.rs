//! What the history costs, measured: a run of a million steps, and a HOME of ten thousand jobs. The figures of
//! `docs/performance.md` come from here; tests hold no time.
//!
//! Not here: a process that lives beside others. Everything runs in this one, and the processor time of taking rows in is
//! counted apart from that of writing them.

use super::History;
use protocol::event::Step;
use protocol::record::Labels;
use protocol::verb::Line;
use protocol::view::{Axis, CurveQuery, JobQuery, JobSort};
use protocol::{Event, JobSpec, Outcome, Plan, Problem};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Instant;
use store::home::Home;
use store::journal::Writer;
use store::run::RunFolder;

/// Steps written at once, then read.
const BURST: u64 = 500_000;
/// Seconds of 10,000 steps that follow.
const SECONDS: u64 = 50;
const RATE: u64 = 10_000;
/// Looks of a screen in a second.
const LOOKS: u64 = 20;
/// Jobs of the large HOME.
const JOBS: u64 = 10_000;
/// Journals they have copies of, so that not all are alike.
const KINDS: u64 = 16;
/// Runs of a measurement, of which the middle one counts.
const ROUNDS: usize = 7;
/// A tenth of a core at 10,000 rows a second.
const LIMIT_US: f64 = 10.0;

/// Measures in folders of its own, which are gone afterwards.
pub fn bench(progress: &mut dyn FnMut(&Line)) -> Outcome<Value> {
    let home = std::env::temp_dir().join(format!("anneal-bench-{}", std::process::id()));
    let result = measure(&home, progress);
    let _ = fs::remove_dir_all(&home);
    result
}

fn measure(folder: &Path, progress: &mut dyn FnMut(&Line)) -> Outcome<Value> {
    let mut told = json!({ "name": "history", "unit": "us of processor time a row", "limit": LIMIT_US });
    progress(&doing("a run of a million steps", 0));
    long_run(&Home::open(&folder.join("run"))?, &mut told)?;
    progress(&doing("a home of ten thousand jobs", 1));
    many_jobs(&Home::open(&folder.join("jobs"))?, &mut told)?;
    told["ratio"] = json!(told["value"].as_f64().unwrap_or_default() / LIMIT_US);
    Ok(told)
}

fn doing(phase: &str, done: u64) -> Line {
    Line::Progress { phase: phase.into(), done, total: 2, unit: "parts".into() }
}

fn long_run(home: &Home, told: &mut Value) -> Outcome<()> {
    let folder = new_run(home, "run")?;
    let mut journal = Writer::open(&folder.journal(), "run")?;
    let (mut history, _) = History::open(home)?;
    let start = Instant::now();
    write(&mut journal, 1, BURST)?;
    told["write_us"] = json!(start.elapsed().as_secs_f64() * 1e6 / BURST as f64);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    history.ingest()?;
    told["burst_seconds"] = json!(start.elapsed().as_secs_f64());
    told["burst_seconds_limit"] = json!(4.0);
    told["burst_rows_per_second"] = json!(BURST as f64 / start.elapsed().as_secs_f64());
    told["burst_us"] = json!((cpu_seconds() - cpu) * 1e6 / BURST as f64);
    told["value"] = json!(steady(&mut history, &mut journal)?);
    curves(&mut history, told)
}

/// Microseconds a row of looking twenty times a second while ten thousand rows a second come.
fn steady(history: &mut History, journal: &mut Writer) -> Outcome<f64> {
    let (mut used, mut next) = (0.0, BURST + 1);
    for _ in 0..SECONDS * LOOKS {
        write(journal, next, next + RATE / LOOKS - 1)?;
        next += RATE / LOOKS;
        let cpu = cpu_seconds();
        history.ingest()?;
        used += cpu_seconds() - cpu;
    }
    if history.jobs(None)?[0].steps != next - 1 {
        return Err(Problem::internal("a row was lost"));
    }
    Ok(used * 1e6 / (SECONDS * RATE) as f64)
}

fn curves(history: &mut History, told: &mut Value) -> Outcome<()> {
    let query = |axis, from, to| CurveQuery { axis, from, to, points: 2000 };
    let queries = [
        ("curve", query(Axis::Step, None, None)),
        ("curve_seconds", query(Axis::Seconds, None, None)),
        ("curve_tenth", query(Axis::Step, Some(4e5), Some(5e5))),
    ];
    queries.iter().try_for_each(|(name, query)| tell(told, name, 200, &mut || history.curve("run", query).map(drop)))
}

fn many_jobs(home: &Home, told: &mut Value) -> Outcome<()> {
    fill(home)?;
    let start = Instant::now();
    drop(History::open(home)?);
    told["rebuild_seconds"] = json!(start.elapsed().as_secs_f64());
    tell(told, "open", 200, &mut || History::open(home).map(drop))?;
    let (mut history, _) = History::open(home)?;
    let query =
        |search: &str, sort, offset| JobQuery { search: search.into(), sort, descending: true, offset, count: 50 };
    for (name, limit, query) in [
        ("page", 50, query("", JobSort::Created, 0)),
        ("page_sorted", 50, query("", JobSort::Name, 5000)),
        ("search", 100, query("number 77", JobSort::FinalLoss, 0)),
        ("search_setting", 100, query("seed>=5000 lr<1", JobSort::Created, 0)),
    ] {
        tell(told, name, limit, &mut || history.page(&query).map(drop))?;
    }
    // Folders must have been quiet for a while before a look at the living ones is enough.
    std::thread::sleep(std::time::Duration::from_secs(11));
    history.ingest()?;
    tell(told, "alive", 5, &mut || history.alive().map(drop))
}

/// Ten thousand run folders. Copied, not made: the fsyncs of that many would take longer than all measurements.
fn fill(home: &Home) -> Outcome<()> {
    let journals = (0..KINDS).map(|kind| short_journal(home, kind)).collect::<Outcome<Vec<_>>>()?;
    let model = new_run(home, "model")?;
    let plan = fs::read(model.plan_file()).map_err(|e| Problem::io(&e, "reading", &model.plan_file()))?;
    for n in 0..JOBS {
        let folder = home.runs().join(format!("job-{n:05}"));
        let spec = spec(&[format!("name=\"number {n}\""), format!("run.seed={n}")])?.to_toml();
        let files: [(&str, &[u8]); 4] = [
            ("job.toml", spec.as_bytes()),
            ("plan.json", &plan),
            ("labels.toml", b"star = false\n"),
            ("journal.jsonl", &journals[(n % KINDS) as usize]),
        ];
        let made = fs::create_dir(&folder)
            .and_then(|()| files.iter().try_for_each(|(name, bytes)| fs::write(folder.join(name), bytes)));
        made.map_err(|e| Problem::io(&e, "making a run folder", &folder))?;
    }
    Ok(())
}

fn short_journal(home: &Home, kind: u64) -> Outcome<Vec<u8>> {
    let path = home.path().join(format!("journal-{kind}"));
    let mut journal = Writer::open(&path, "job")?;
    let at_ms = 1_700_000_000_000 + kind as i64;
    journal.append(1, at_ms, Event::Started { step: 0, steps_total: 20 })?;
    for n in 1..=20 {
        journal.append(1, at_ms + n as i64 * 1000, step(n + kind))?;
    }
    let finished = Event::Finished { step: 20, loss: 1.0, memory: Default::default() };
    journal.append(1, at_ms + 30_000, finished)?;
    journal.flush()?;
    fs::read(&path).map_err(|e| Problem::io(&e, "reading", &path))
}

fn new_run(home: &Home, id: &str) -> Outcome<RunFolder> {
    let plan: Plan = serde_json::from_str(include_str!("example_plan.json"))
        .map_err(|e| Problem::internal(format!("the example plan: {e}")))?;
    RunFolder::create(home, id, &spec(&[])?, &plan, &Labels::default())
}

fn spec(changes: &[String]) -> Outcome<JobSpec> {
    let text = "stage = \"sft\"\n[model]\npath = \"model\"\n[data]\ntrain = [\"rows.jsonl\"]\n";
    JobSpec::parse(text, changes, Path::new("/data"))
}

fn write(journal: &mut Writer, first: u64, last: u64) -> Outcome<()> {
    for n in first..=last {
        journal.append(1, 1_700_000_000_000 + n as i64, step(n))?;
        if n % 1000 == 0 {
            journal.flush()?;
        }
    }
    journal.flush()
}

/// Numbers with as many digits as a real run's.
fn step(n: u64) -> Event {
    let x = n as f64;
    Event::Step(Step {
        step: n,
        loss: 10.0 / x.sqrt() + x.sin() / 7.0,
        grad_norm: 1.0 + x.cos() / 3.0,
        learning_rate: 1e-4 / (1.0 + x / 3e5),
        targets: 4000 + n % 97,
        tokens: n * 4096,
        epoch: x / 7777.0,
        step_ms: 100.0 + x.sin(),
        tokens_per_second: 40_960.0 + x.cos() * 100.0,
    })
}

/// Tells the middle time of a piece of work under `name`, the middle processor time beside it (the same on an idle machine,
/// and all that counts on a busy one) and the limit.
fn tell(told: &mut Value, name: &str, limit_ms: u32, work: &mut dyn FnMut() -> Outcome<()>) -> Outcome<()> {
    let (mut wall, mut processor) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        work()?;
        wall.push(start.elapsed().as_secs_f64() * 1e3);
        processor.push((cpu_seconds() - cpu) * 1e3);
    }
    let middle = |times: &mut Vec<f64>| {
        times.sort_unstable_by(f64::total_cmp);
        times[ROUNDS / 2]
    };
    told[format!("{name}_ms")] = json!(middle(&mut wall));
    told[format!("{name}_cpu_ms")] = json!(middle(&mut processor));
    told[format!("{name}_ms_limit")] = json!(limit_ms);
    Ok(())
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
