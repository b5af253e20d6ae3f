//! Run folders for measurements: ten thousand short jobs, and runs of any length. What is measured over them is told by
//! `bench` here and by the window's benchmark.

use protocol::event::Step;
use protocol::record::Labels;
use protocol::{Event, JobSpec, Outcome, Plan, Problem};
use std::fs;
use std::path::Path;
use store::home::Home;
use store::journal::Writer;
use store::run::RunFolder;

/// Jobs of the large HOME.
pub const JOBS: u64 = 10_000;
/// Journals they have copies of, so that not all are alike.
const KINDS: u64 = 16;
/// Steps of a long run between two evaluations, and between two checkpoints.
const SPAN: u64 = 5000;
/// Start of every seeded run, milliseconds since the Unix epoch.
const BEGAN_MS: i64 = 1_700_000_000_000;

/// Many finished run folders. Copied, not made: the fsyncs of that many would take longer than all measurements.
pub fn jobs(home: &Home, count: u64) -> Outcome<()> {
    let journals = (0..KINDS).map(|kind| short_journal(home, kind)).collect::<Outcome<Vec<_>>>()?;
    let model = new_run(home, "model", &[])?;
    let plan = fs::read(model.plan_file()).map_err(|e| Problem::io(&e, "reading", &model.plan_file()))?;
    for n in 0..count {
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

/// A run with this many steps that have been made, and as many to come.
pub fn long_run(home: &Home, id: &str, steps: u64) -> Outcome<RunFolder> {
    let folder = new_run(home, id, &[format!("name={id:?}")])?;
    let mut journal = Writer::open(&folder.journal(), id)?;
    journal.append(1, BEGAN_MS, Event::Started { step: 0, steps_total: 2 * steps })?;
    for from in (1..=steps).step_by(SPAN as usize) {
        let last = steps.min(from + SPAN - 1);
        write(&mut journal, from, last)?;
        let at_ms = BEGAN_MS + last as i64;
        let loss = 10.0 / (last as f64).sqrt();
        journal.append(1, at_ms, Event::Evaluation { step: last, loss, perplexity: loss.exp(), tokens: 4096 })?;
        let path = format!("step-{last:08}");
        journal.append(1, at_ms, Event::Checkpoint { step: last, path, bytes: 1 << 20, seconds: 0.5 })?;
    }
    journal.flush()?;
    Ok(folder)
}

fn short_journal(home: &Home, kind: u64) -> Outcome<Vec<u8>> {
    let path = home.path().join(format!("journal-{kind}"));
    let mut journal = Writer::open(&path, "job")?;
    let at_ms = BEGAN_MS + kind as i64;
    journal.append(1, at_ms, Event::Started { step: 0, steps_total: 20 })?;
    for n in 1..=20 {
        journal.append(1, at_ms + n as i64 * 1000, step(n + kind))?;
    }
    let finished = Event::Finished { step: 20, loss: 1.0, memory: Default::default() };
    journal.append(1, at_ms + 30_000, finished)?;
    journal.flush()?;
    fs::read(&path).map_err(|e| Problem::io(&e, "reading", &path))
}

/// A run folder without a journal; the changes are settings of its job file.
pub fn new_run(home: &Home, id: &str, changes: &[String]) -> Outcome<RunFolder> {
    let plan: Plan = serde_json::from_str(include_str!("example_plan.json"))
        .map_err(|e| Problem::internal(format!("the example plan: {e}")))?;
    RunFolder::create(home, id, &spec(changes)?, &plan, &Labels::default())
}

fn spec(changes: &[String]) -> Outcome<JobSpec> {
    let text = "stage = \"sft\"\n[model]\npath = \"model\"\n[data]\ntrain = [\"rows.jsonl\"]\n";
    JobSpec::parse(text, changes, Path::new("/data"))
}

/// Appends the steps `first` to `last`.
pub fn write(journal: &mut Writer, first: u64, last: u64) -> Outcome<()> {
    for n in first..=last {
        journal.append(1, BEGAN_MS + n as i64, step(n))?;
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
