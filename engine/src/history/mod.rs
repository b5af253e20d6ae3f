//! The history: what every job was, did and became, answered from `HOME/history.sqlite3`.
//!
//! The file is an index. Everything in it is derived from the run folders (`ingest.rs`), so a lost or damaged file is built
//! again (`database.rs`) and gives the same answers; how damage is noticed is told in `tally.rs`. One table a file: `jobs.rs`,
//! `settings.rs`, `steps.rs`, `evaluations.rs`, `marks.rs`; `list.rs` holds all jobs in memory.
//!
//! Not here: who writes run folders (the supervisor), what is in them (`store`), and the wish to see them change (the
//! caller's clock: call [`History::ingest`] as often as the screen needs it).

mod bench;
mod compare;
mod curve;
mod database;
mod description;
mod evaluations;
mod failure;
mod ingest;
mod jobs;
mod list;
mod marks;
mod overview;
mod page;
mod search;
pub mod seed;
mod settings;
mod steps;
mod summary;
mod tally;
#[cfg(test)]
mod tests;

pub use bench::bench;

use crate::trash;
use database::{Database, WriteLock};
use failure::{Answer, Failure, KEPT};
use ingest::Watched;
use jobs::Job;
use list::JobList;
use protocol::record::{CheckpointRow, Comparison, Fingerprints, JobRecord, JobRow, JobState, MetricRow};
use protocol::view::{Curve, CurveQuery, JobPage, JobQuery};
use protocol::{Code, Outcome, Plan, Problem};
use rusqlite::Connection;
use search::Search;
use serde_json::json;
use store::disk::RealDisk;
use store::home::Home;
use store::run::RunFolder;

/// One way of bringing the tables up to the run folders.
type Ingest<'a> = &'a dyn Fn(&Connection, &Home, &mut JobList) -> Answer<Vec<Problem>>;

/// One way of bringing the list up to the file.
type Refresh = fn(&mut JobList, &Connection) -> Answer<()>;

/// Rows of metrics read at once: a reader never holds the file's log back for long, and memory stays at half a megabyte.
const ROWS: usize = 4096;
/// Notices remembered so that none is given twice; more than these can only be repeated, never lost.
const NOTICES: usize = 1000;

/// The open history of one HOME. Several may be open at once, in one process or many.
pub struct History {
    home: Home,
    database: Database,
    list: JobList,
    watched: Watched,
    /// Found while answering, given by the next `ingest`.
    waiting: Vec<Problem>,
    given: Vec<Problem>,
}

impl History {
    /// Opens (or creates, migrates, rebuilds) `home/history.sqlite3`, ingests what the run folders hold, and frees trash
    /// whose time is over. The problems are notices for the user: the history works all the same.
    /// Errors: `HistoryNewer`, `HistoryFailed`, `DiskFull`, `DiskFailed`, `Busy`.
    pub fn open(home: &Home) -> Outcome<(History, Vec<Problem>)> {
        let lock = database::lock(home.path())?;
        let (database, notice) = open_or_rebuild(home, &lock)?;
        let (list, watched) = (JobList::default(), Watched::default());
        let mut history =
            History { home: home.clone(), database, list, watched, waiting: Vec::new(), given: Vec::new() };
        history.waiting.extend(notice);
        history.waiting.extend(trash::free_old(home, now_ms()).err());
        history.ingest_with(&lock)?;
        let notices = history.take_notices();
        Ok((history, notices))
    }

    /// Reads what run folders have gained since the last time, from this engine or another. Returns notices, each once.
    /// Errors as in `open`; whatever fails, no row is lost or doubled, and the next call goes on.
    pub fn ingest(&mut self) -> Outcome<Vec<Problem>> {
        let lock = database::lock(self.home.path())?;
        self.ingest_with(&lock)?;
        Ok(self.take_notices())
    }

    /// The same for living jobs alone, and for all where one may be new, gone or started again: cheap enough for once a
    /// second beside ten thousand jobs. What a user says of a job that has ended is left to `ingest`.
    pub fn look(&mut self) -> Outcome<Vec<Problem>> {
        self.look_quietly(None)?;
        Ok(self.take_notices())
    }

    /// The same, and what the folder of one job has gained, whether it lives or not; `id` may be the beginning of one.
    pub fn look_at(&mut self, id: &str) -> Outcome<Vec<Problem>> {
        self.look_quietly(Some(id))?;
        Ok(self.take_notices())
    }

    /// A second history of the same HOME, for a call beside this one's. It begins with what this one knows, where `open`
    /// reads ten thousand jobs and looks at all their folders.
    pub fn another(&mut self) -> Outcome<History> {
        let lock = database::lock(self.home.path())?;
        if !self.database.is_current(self.home.path()) {
            self.ingest_with(&lock)?;
        }
        match self.list.refresh(&self.database.db) {
            Err(Failure::Damaged(why)) => self.mend(&why, &lock)?,
            done => done.map_err(Failure::problem)?,
        }
        Ok(History {
            home: self.home.clone(),
            database: Database::another(self.home.path()).map_err(Failure::problem)?,
            list: self.list.clone(),
            watched: self.watched.clone(),
            waiting: Vec::new(),
            given: self.given.clone(),
        })
    }

    /// All jobs, newest first; those only that match every word of `search` (see `search.rs`).
    /// Errors: `SettingInvalid` where a comparison of `search` is none.
    pub fn jobs(&mut self, search: Option<&str>) -> Outcome<Vec<JobRow>> {
        let mut found = self.matching(search.unwrap_or_default())?;
        page::newest_first(&mut found);
        Ok(found.into_iter().map(|(row, _)| row).collect())
    }

    /// A page of the jobs that match, in the order asked for.
    pub fn page(&mut self, query: &JobQuery) -> Outcome<JobPage> {
        Ok(page::of(self.matching(&query.search)?, query))
    }

    /// Jobs that are queued, running, paused or about to be, newest first, after a `look`.
    pub fn alive(&mut self) -> Outcome<Vec<JobRow>> {
        self.look_quietly(None)?;
        let alive = self.list.iter().filter(|job| job.progress.summary.state.is_alive());
        let mut found: Vec<_> = alive.map(|job| (self.row(job), job)).filter(|(row, _)| row.state.is_alive()).collect();
        page::newest_first(&mut found);
        Ok(found.into_iter().map(|(row, _)| row).collect())
    }

    /// The full id of a job, from its id or any beginning of it that only one job has. Errors: `NotFound`.
    pub fn find(&mut self, id: &str) -> Outcome<String> {
        self.refresh()?;
        let found = if id.is_empty() { Vec::new() } else { self.list.beginning_with(id) };
        match found.as_slice() {
            [one] => Ok(one.clone()),
            several if several.iter().any(|one| one == id) => Ok(id.to_owned()),
            [] => Err(absent(&self.home, id)),
            several => Err(Problem::new(Code::NotFound, format!("several jobs begin with \"{}\"", id.escape_debug()))
                .why(several.join(", "))
                .remedy("give more of the id")),
        }
    }

    /// One job in full. Errors: `NotFound`, or what is wrong with its run folder.
    pub fn job(&mut self, id: &str) -> Outcome<JobRecord> {
        let id = self.find(id)?;
        let job = self.list.get(&id).ok_or_else(|| no_job(&id))?;
        let folder = RunFolder::of(&self.home, &job.id)?;
        let (plan, labels) = (folder.plan()?, folder.labels()?);
        let (spec, damage) = match folder.spec() {
            Ok(spec) => (Some(spec), None),
            Err(problem) => (None, Some(problem)),
        };
        let (_, exit_reason, problem) = self.ending(job);
        Ok(JobRecord {
            row: self.row(job),
            exit_reason,
            problem,
            damage,
            spec,
            fingerprints: fingerprints(&plan),
            plan,
            checkpoints: store::checkpoint::list(&RealDisk, &folder.checkpoints())?,
            labels,
            attempts: job.progress.summary.attempts,
            folder: folder.path().display().to_string(),
        })
    }

    /// Hands every step of a job to `each`, in order, in bounded memory. Stops at the first error of `each`.
    pub fn metrics(&mut self, id: &str, each: &mut dyn FnMut(&MetricRow) -> Outcome<()>) -> Outcome<()> {
        let id = self.find(id)?;
        self.answer(|db| proved(&*db.unchecked_transaction()?, &id))?;
        let mut last = 0;
        loop {
            // Where damage shows only now, the rebuilt file goes on after the last row given.
            let rows = self.answer(|db| metric_rows(db, &id, last))?;
            let Some(end) = rows.last() else { return Ok(()) };
            last = end.step.step;
            rows.iter().try_for_each(&mut *each)?;
        }
    }

    /// A job's curve in at most `query.points` points, with what else happened on the way.
    pub fn curve(&mut self, id: &str, query: &CurveQuery) -> Outcome<Curve> {
        let id = self.find(id)?;
        let curve = self.answer(|db| {
            let moment = db.unchecked_transaction()?;
            proved(&moment, &id)?.map(|job| curve::of(&moment, &job, query)).transpose()
        })?;
        curve.ok_or_else(|| no_job(&id))
    }

    /// Two jobs side by side: only what differs, and both curves.
    pub fn compare(&mut self, a: &str, b: &str) -> Outcome<Comparison> {
        let (a, b) = (self.job(a)?, self.job(b)?);
        if let Some(problem) = a.damage.or(b.damage) {
            return Err(problem);
        }
        let (curve_a, curve_b) = (self.losses(&a.row.id)?, self.losses(&b.row.id)?);
        Ok(Comparison {
            spec: compare::differences(&json!(a.spec), &json!(b.spec)),
            data: compare::differences(&json!(a.plan.data), &json!(b.plan.data)),
            model: compare::differences(&json!(a.plan.model), &json!(b.plan.model)),
            curve_a,
            curve_b,
        })
    }

    /// Checkpoints of a job on disk; with `verify` every checksum is compared.
    pub fn checkpoints(&mut self, id: &str, verify: bool) -> Outcome<Vec<CheckpointRow>> {
        let id = self.find(id)?;
        let folder = RunFolder::of(&self.home, &id)?.checkpoints();
        let mut rows = store::checkpoint::list(&RealDisk, &folder)?;
        for row in rows.iter_mut().filter(|row| verify && row.complete) {
            let outcome = store::checkpoint::verify(&RealDisk, &folder.join(store::checkpoint::folder_name(row.step)));
            row.verified = Some(outcome.is_ok());
            row.problem = outcome.err();
        }
        Ok(rows)
    }

    /// Moves a job that is not alive to the trash and returns its full id. Errors: `NotFound`, `WrongState` (alive, or in
    /// the trash already).
    pub fn delete(&mut self, id: &str) -> Outcome<String> {
        let id = self.find(id).map_err(|problem| match trash::find(&self.home, id) {
            Ok(deleted) if !id.is_empty() => store::trash::already(&deleted),
            _ => problem,
        })?;
        trash::delete(&self.home, &id, now_ms())?;
        self.ingest_quietly()?;
        Ok(id)
    }

    /// Takes a job out of the trash. Errors: `NotFound`.
    pub fn restore(&mut self, id: &str) -> Outcome<()> {
        store::trash::restore(&self.home, &trash::find(&self.home, id)?)?;
        self.ingest_quietly()
    }

    /// Frees a job in the trash now (`delete --now`). Errors: `NotFound`.
    pub fn free(&mut self, id: &str) -> Outcome<()> {
        store::trash::free_now(&self.home, &trash::find(&self.home, id)?)
    }

    fn ingest_quietly(&mut self) -> Outcome<()> {
        let lock = database::lock(self.home.path())?;
        self.ingest_with(&lock)
    }

    fn look_quietly(&mut self, asked: Option<&str>) -> Outcome<()> {
        let lock = database::lock(self.home.path())?;
        if self.watched.changed(&self.home) {
            return self.ingest_with(&lock);
        }
        self.take_in(&lock, &|db, home, list| ingest::living(db, home, list, asked))
    }

    fn ingest_with(&mut self, lock: &WriteLock) -> Outcome<()> {
        self.watched.look(&self.home);
        self.take_in(lock, &ingest::run_folders)
    }

    fn take_in(&mut self, lock: &WriteLock, ingest: Ingest<'_>) -> Outcome<()> {
        if !self.database.is_current(self.home.path()) {
            self.reopen(lock)?;
        }
        let mut notices = ingest(&self.database.db, &self.home, &mut self.list);
        if let Err(Failure::Damaged(why)) = &notices {
            self.rebuild(why, lock)?;
            notices = ingest::run_folders(&self.database.db, &self.home, &mut self.list);
        }
        self.waiting.extend(notices.map_err(Failure::problem)?);
        Ok(())
    }

    /// Brings the list up to the file.
    fn refresh(&mut self) -> Outcome<()> {
        self.refresh_by(JobList::refresh)
    }

    fn refresh_by(&mut self, refresh: Refresh) -> Outcome<()> {
        match refresh(&mut self.list, &self.database.db) {
            Err(Failure::Damaged(why)) => {
                let lock = database::lock(self.home.path())?;
                self.mend(&why, &lock)?;
                refresh(&mut self.list, &self.database.db).map_err(Failure::problem)
            }
            done => done.map_err(Failure::problem),
        }
    }

    fn mend(&mut self, why: &str, lock: &WriteLock) -> Outcome<()> {
        self.rebuild(why, lock)?;
        self.ingest_with(lock)
    }

    /// Brings the list up to the file, and finds the jobs that match.
    fn matching(&mut self, search: &str) -> Outcome<Vec<page::Found<'_>>> {
        let now = search::Now { at_ms: now_ms(), zone: jiff::tz::TimeZone::system() };
        let search = Search::parse(search, &now)?;
        let refresh = if search.names_a_setting() { JobList::refresh_with_settings } else { JobList::refresh };
        self.refresh_by(refresh)?;
        let rows = self.list.iter().map(|job| (self.row(job), job));
        let matches =
            |(row, job): &page::Found<'_>| search.matches(row, &job.description.labels, self.list.settings(job));
        Ok(rows.filter(matches).collect())
    }

    /// Runs a query; where it meets damage, builds the file again and runs it once more.
    fn answer<T>(&mut self, query: impl Fn(&Connection) -> Answer<T>) -> Outcome<T> {
        match query(&self.database.db) {
            Err(Failure::Damaged(why)) => {
                let lock = database::lock(self.home.path())?;
                self.mend(&why, &lock)?;
                query(&self.database.db).map_err(Failure::problem)
            }
            answer => answer.map_err(Failure::problem),
        }
    }

    fn rebuild(&mut self, why: &str, lock: &WriteLock) -> Outcome<()> {
        // Another engine may have met the same damage and moved the file aside already.
        if self.database.is_current(self.home.path()) {
            self.waiting.push(move_aside(&self.home, why)?);
        }
        self.reopen(lock)
    }

    fn reopen(&mut self, lock: &WriteLock) -> Outcome<()> {
        let (database, notice) = open_or_rebuild(&self.home, lock)?;
        self.database = database;
        self.list = JobList::default();
        self.waiting.extend(notice);
        Ok(())
    }

    fn take_notices(&mut self) -> Vec<Problem> {
        let waiting = std::mem::take(&mut self.waiting);
        let new: Vec<Problem> = waiting.into_iter().filter(|problem| !self.given.contains(problem)).collect();
        let room = NOTICES.saturating_sub(self.given.len());
        self.given.extend(new.iter().take(room).cloned());
        new
    }

    fn losses(&mut self, id: &str) -> Outcome<Vec<(u64, f64)>> {
        let mut curve = Vec::new();
        self.metrics(id, &mut |row| {
            // A step that was left out is a gap.
            if row.step.loss.is_finite() {
                curve.push((row.step.step, row.step.loss));
            }
            Ok(())
        })?;
        Ok(curve)
    }

    fn row(&self, job: &Job) -> JobRow {
        let (summary, about) = (&job.progress.summary, &job.description);
        JobRow {
            id: job.id.clone(),
            name: about.shown_name().to_owned(),
            state: self.ending(job).0,
            model: about.model.clone(),
            data: about.data.clone(),
            stage: about.stage.clone(),
            steps: summary.steps,
            steps_total: summary.steps_total.unwrap_or(about.steps),
            final_loss: summary.final_loss,
            best_evaluation_loss: summary.best_evaluation_loss,
            tokens: summary.tokens,
            started: summary.started,
            seconds_active: summary.seconds_active(),
        }
    }

    /// State, exit reason and problem: what the journal says, unless it says "alive" and nobody holds the run's lock.
    fn ending(&self, job: &Job) -> (JobState, Option<String>, Option<Problem>) {
        let summary = &job.progress.summary;
        let reason = match (summary.state, &summary.problem) {
            (JobState::Finished, _) => Some("finished".to_owned()),
            (JobState::Stopped, _) => Some("stopped by the user".to_owned()),
            (_, Some(problem)) => Some(problem.what.clone()),
            _ => None,
        };
        if summary.state.is_alive() && !self.is_held(&job.id) {
            let lost = Problem::new(Code::SupervisorLost, "supervisor lost")
                .why("the job's supervisor ended without a word")
                .kept("everything up to the newest checkpoint")
                .remedy(format!("anneal resume {}", job.id));
            return (JobState::Interrupted, Some(lost.what.clone()), Some(lost));
        }
        (summary.state, reason, summary.problem.clone())
    }

    fn is_held(&self, id: &str) -> bool {
        // A lock that cannot be looked at is no reason to call a job dead.
        RunFolder::of(&self.home, id).is_ok_and(|folder| folder.is_held().unwrap_or(true))
    }
}

fn open_or_rebuild(home: &Home, _held: &WriteLock) -> Outcome<(Database, Option<Problem>)> {
    match Database::open(home.path()) {
        Err(Failure::Damaged(why)) => {
            let notice = move_aside(home, &why)?;
            Ok((Database::open(home.path()).map_err(Failure::problem)?, Some(notice)))
        }
        opened => Ok((opened.map_err(Failure::problem)?, None)),
    }
}

fn move_aside(home: &Home, why: &str) -> Outcome<Problem> {
    let folder = database::move_aside(home.path(), now_ms())?;
    Ok(Problem::new(Code::HistoryRebuilt, "the history was damaged and has been built again from the run folders")
        .why(why)
        .file(&folder)
        .kept(format!("{KEPT}; the damaged file lies in {}", folder.display()))
        .remedy("check the disk if this happens again (dmesg tells more); the damaged file may be removed"))
}

/// A job of which every row that was written is there, and no other. Call inside a transaction.
fn proved(moment: &Connection, id: &str) -> Answer<Option<Job>> {
    let Some(job) = jobs::by_id(moment, id)? else { return Ok(None) };
    let (key, progress) = (job.key(), &job.progress);
    let found = (steps::tally(moment, key)?, evaluations::tally(moment, key)?, marks::tally(moment, key)?);
    if found == (progress.steps, progress.evaluations, progress.marks) {
        return Ok(Some(job));
    }
    Err(Failure::Damaged(format!(
        "job {id}: {} blocks of steps are there, and they are not those written",
        found.0.rows
    )))
}

fn metric_rows(db: &Connection, id: &str, after: u64) -> Answer<Vec<MetricRow>> {
    let (moment, key) = (db.unchecked_transaction()?, tally::text(id));
    let rows = steps::above(&moment, key, after, ROWS)?;
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(Vec::new()) };
    let evaluations = evaluations::between(&moment, key, first.step.step, last.step.step)?;
    let row = |row: steps::StepRow| MetricRow {
        attempt: row.attempt,
        at_ms: row.at_ms,
        evaluation_loss: evaluations.get(&row.step.step).map(|evaluation| evaluation.loss),
        step: row.step,
    };
    Ok(rows.into_iter().map(row).collect())
}

fn fingerprints(plan: &Plan) -> Fingerprints {
    Fingerprints {
        model: plan.model.fingerprint.clone(),
        data: plan.data.data_fingerprint.clone(),
        tokenizer: plan.data.tokenizer_fingerprint.clone(),
    }
}

/// Why there is no job of this id: its folder may be there and lack its job file.
fn absent(home: &Home, id: &str) -> Problem {
    match RunFolder::of(home, id) {
        Err(problem) if problem.code == Code::FileUnreadable => problem,
        _ => no_job(id),
    }
}

fn no_job(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no job \"{}\"", id.escape_debug())).remedy("see `anneal jobs`")
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
