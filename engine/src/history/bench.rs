//! What the history costs, measured: a run of a million steps, and a HOME of ten thousand jobs. The figures of
//! `docs/performance.md` come from here; tests hold no time.
//!
//! Not here: how such a HOME is made (`seed`), a process that lives beside others. Everything runs in this one, and the processor time of taking rows in is
//! counted apart from that of writing them.

use super::History;
use super::seed::{self, new_run, write};
use protocol::verb::Line;
use protocol::view::{Axis, CurveQuery, JobQuery, JobSort};
use protocol::{Outcome, Problem};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Instant;
use store::home::Home;
use store::journal::Writer;

/// Steps written at once, then read.
const BURST: u64 = 500_000;
/// Seconds of 10,000 steps that follow.
const SECONDS: u64 = 50;
const RATE: u64 = 10_000;
/// Looks of a screen in a second.
const LOOKS: u64 = 20;
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
    let folder = new_run(home, "run", &[])?;
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
    seed::jobs(home, seed::JOBS)?;
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
