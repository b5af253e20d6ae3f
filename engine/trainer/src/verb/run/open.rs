//! What is opened and checked before the first step: plan, token cache, base model, the newest checkpoint that verifies.

use crate::batch::{Row, RowSource};
use crate::link::Link;
use crate::rank::Rank;
use crate::ranks::{Broken, Ranks, SharedRows};
use formats::fingerprint;
use formats::model_folder::ModelFolder;
use formats::tokens::{Cache, TokenSet};
use protocol::event::Step;
use protocol::plan::{Compute, Method, ModelSource, Plan, PlannedData};
use protocol::{Code, Event, Outcome, Problem};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use store::checkpoint::{self, Restore};
use store::disk::Disk;
use store::journal::Reader;
use store::run::RunFolder;

/// Everything a run is made of.
pub struct Opened {
    /// Its folder.
    pub run: RunFolder,
    /// Its plan.
    pub plan: Plan,
    /// Its rows.
    pub cache: Arc<Cache>,
    /// Its ranks.
    pub ranks: Ranks,
    /// The checkpoint the state came from.
    pub restored: Option<Restore>,
    /// Steps of an earlier attempt that may not have reached the journal.
    pub unjournaled: Vec<Step>,
    /// What the user should know.
    pub warnings: Vec<Problem>,
}

/// Opens a run folder. Errors: `DataChanged`, `ModelChanged`, `CheckpointDamaged` when checkpoints exist and none is whole,
/// `NotSupported`, `OutOfMemory`, those of the files read.
pub fn open(folder: &Path, disk: &dyn Disk, link: &Link, broken: &Broken) -> Outcome<Opened> {
    link.alive("loading");
    let run = RunFolder::open(folder)?;
    let plan = run.plan()?;
    let mut warnings = differences(&plan.compute);
    let cache = Arc::new(cache(&plan.data)?);
    link.alive("checking checkpoints");
    let (restored, damaged) = checkpoint::newest_good(disk, &run.checkpoints(), run.id());
    if restored.is_none() && !damaged.is_empty() {
        return Err(all_damaged(&run, &damaged));
    }
    warnings.extend(damaged);
    if restored.is_none() || matches!(plan.method, Method::Lora { .. }) {
        link.alive("checking the model");
        check_model(&plan)?;
    }
    link.alive("loading");
    let rows: SharedRows = Arc::new(Training(Arc::clone(&cache)));
    let (ranks, unjournaled) = Ranks::open(&plan, restored.as_ref(), &rows, broken)?;
    Ok(Opened { run, plan, cache, ranks, restored, unjournaled, warnings })
}

/// Step of the newest checkpoint as far as its name tells, for the message of a run that cannot be opened; 0 = none.
pub fn safe_step(folder: &Path, disk: &dyn Disk) -> u64 {
    let listed = RunFolder::open(folder).and_then(|run| checkpoint::list(disk, &run.checkpoints()));
    listed.ok().and_then(|rows| rows.iter().find(|row| row.complete).map(|row| row.step)).unwrap_or(0)
}

/// (loss, step) of the evaluations that checkpoints are kept for, as far as an earlier attempt told: the best one is part
/// of the state, more of them are in the journal.
pub fn best_evaluations(run: &RunFolder, plan: &Plan, rank: &Rank) -> Vec<(f64, u64)> {
    let best = rank.best().map(|best| (best.loss, best.step));
    if plan.snapshot.keep_best <= 1 || best.is_none() {
        return best.into_iter().collect();
    }
    let told = evaluations(&run.journal(), rank.progress().step);
    told.unwrap_or_else(|problem| {
        eprintln!("earlier evaluations are not known: {problem}");
        best.into_iter().collect()
    })
}

/// Evaluations of the journal up to a step; of several attempts' the last one counts.
fn evaluations(journal: &Path, until: u64) -> Outcome<Vec<(f64, u64)>> {
    let mut reader = Reader::open(journal, 0)?;
    let mut told = BTreeMap::new();
    while let Some((entry, _)) = reader.next()? {
        match entry.event {
            Event::Evaluation { step, loss, .. } if step <= until => drop(told.insert(step, loss)),
            _ => {}
        }
    }
    Ok(told.into_iter().map(|(step, loss)| (loss, step)).collect())
}

/// The rows of a token set as the trainer draws them.
pub struct Rows<'a>(pub &'a TokenSet);

impl RowSource for Rows<'_> {
    fn rows(&self) -> u64 {
        self.0.rows() as u64
    }

    fn row(&self, index: u64) -> Row<'_> {
        let row = self.0.row(index as usize);
        Row { tokens: row.tokens, trained: row.trained, segments: row.segments }
    }
}

/// The training rows of a cache that several threads share.
struct Training(Arc<Cache>);

impl RowSource for Training {
    fn rows(&self) -> u64 {
        Rows(self.0.train()).rows()
    }

    fn row(&self, index: u64) -> Row<'_> {
        let row = self.0.train().row(index as usize);
        Row { tokens: row.tokens, trained: row.trained, segments: row.segments }
    }
}

fn all_damaged(run: &RunFolder, damaged: &[Problem]) -> Problem {
    let why: Vec<String> = damaged.iter().map(Problem::sentence).collect();
    Problem::new(Code::CheckpointDamaged, "every checkpoint of this run is damaged")
        .why(why.join("; "))
        .file(&run.checkpoints())
        .remedy("check the disk; `anneal fork` or a new job starts again, nothing is overwritten here")
}

fn cache(planned: &PlannedData) -> Outcome<Cache> {
    let changed = |what: &str, why: String| {
        Problem::new(Code::DataChanged, what)
            .why(why)
            .file(&planned.tokens)
            .remedy("start a new job on this data; this one needs the tokens it was planned with")
    };
    let cache =
        Cache::open(&planned.tokens).map_err(|e| changed("the run's token cache cannot be used", e.sentence()))?;
    let found = &cache.facts().fingerprint;
    if *found != planned.fingerprint {
        let why = format!("its fingerprint is {found}, the plan has {}", planned.fingerprint);
        return Err(changed("the run's token cache is not the one it was planned with", why));
    }
    Ok(cache)
}

/// Refuses a base model whose weights are not those that were planned with.
fn check_model(plan: &Plan) -> Outcome<()> {
    let ModelSource::Folder { path } = &plan.model.source else { return Ok(()) };
    let changed = |why: String| {
        Problem::new(Code::ModelChanged, "the base model is not the one this run was planned with")
            .why(why)
            .file(path)
            .remedy("put the original files back, or start a new job from this model")
    };
    let folder = ModelFolder::open(path).map_err(|e| changed(e.sentence()))?;
    let found = fingerprint::files(&folder.weight_files())?;
    if found != plan.model.fingerprint {
        return Err(changed(format!("its fingerprint is {found}, the plan has {}", plan.model.fingerprint)));
    }
    Ok(())
}

/// What differs between the machine that planned and this one, as one warning: bits may change, nothing else.
fn differences(planned: &Compute) -> Vec<Problem> {
    let mut differ = Vec::new();
    let mut compare = |what: &str, planned: &str, here: &str| {
        if !planned.is_empty() && !here.is_empty() && planned != here {
            differ.push(format!("{what} was {planned} and is {here}"));
        }
    };
    compare("the instruction set", &planned.instruction_set, instruction_set());
    compare("the processor", &planned.cpu, &cpu());
    for (name, version) in plan::libraries() {
        compare(&name, planned.libraries.get(&name).map_or("unknown", String::as_str), &version);
    }
    if differ.is_empty() {
        return Vec::new();
    }
    let problem = Problem::new(Code::WrongState, "the run continues, not bit-equal")
        .why(differ.join("; "))
        .kept("everything: only the last bits of results may differ from those of the planned machine")
        .remedy("nothing, unless bits must be equal: then go on where the job was planned");
    vec![problem]
}

/// "avx512", "avx2" or "baseline", as plans name them.
fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512vl") {
            return "avx512";
        }
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            return "avx2";
        }
    }
    "baseline"
}

/// Name of the processor; empty where the kernel does not say.
fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name =
        text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    name.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute() -> Compute {
        Compute { cpu: cpu(), instruction_set: instruction_set().into(), threads: 2, libraries: plan::libraries() }
    }

    #[test]
    fn the_same_machine_gives_no_warning() {
        assert_eq!(differences(&compute()), []);
    }

    #[test]
    fn another_library_or_instruction_set_is_one_warning_that_names_both_sides() {
        let mut planned = compute();
        planned.instruction_set = "neon".into();
        planned.libraries.insert("anneal".into(), "0.0.1".into());
        let warnings = differences(&planned);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].what.contains("not bit-equal"));
        assert!(warnings[0].why.contains("neon") && warnings[0].why.contains("anneal was 0.0.1"), "{}", warnings[0]);
    }
}
