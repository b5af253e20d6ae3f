//! From run folders to rows. Each journal is read from the offset that was stored with the rows before it, in the same
//! transaction: whatever ends the reading, every row is there exactly once.

use super::database::{Database, LOG_BYTES};
use super::description::Description;
use super::evaluations::{self, EvaluationRow};
use super::failure::Answer;
use super::jobs::{self, Job, Position, Progress};
use super::steps::{self, StepRow};
use super::tally;
use protocol::{Code, Entry, Event, Problem};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use store::home::Home;
use store::journal::Reader;
use store::run::RunFolder;

/// Journal entries in one transaction: about 2 MB of pages, and a tenth of a second.
const BATCH: usize = 10_000;

/// Brings the tables up to the run folders. Call with the lock held. Gives notices about single folders.
pub fn run_folders(db: &Connection, home: &Home) -> Answer<Vec<Problem>> {
    let mut seen = jobs::seen(db)?;
    let mut notices = Vec::new();
    for id in home.run_ids()? {
        let Some(stamps) = Stamps::of(&home.runs().join(&id)) else { continue };
        if seen.remove(&id) == Some(stamps.all) {
            continue;
        }
        // One that was deleted a moment ago is no news.
        if let Ok(folder) = RunFolder::of(home, &id) {
            notices.extend(run_folder(db, &folder, &stamps)?);
        }
    }
    // What is left has no run folder any more.
    for id in seen.keys().filter(|id| Stamps::of(&home.runs().join(id)).is_none()) {
        forget(db, id)?;
    }
    Ok(notices)
}

/// Inode, size and time of a run folder's files, hashed.
struct Stamps {
    quiet: i64,
    all: i64,
    journal_inode: u64,
    journal_bytes: u64,
}

impl Stamps {
    /// `None` where this is no run folder.
    fn of(folder: &Path) -> Option<Stamps> {
        let stamp = |name: &str| {
            std::fs::symlink_metadata(folder.join(name)).map_or([0; 4], |status| {
                [status.ino() as i64, status.size() as i64, status.mtime(), status.mtime_nsec()]
            })
        };
        let [spec, plan, labels, journal] = ["job.toml", "plan.json", "labels.toml", "journal.jsonl"].map(stamp);
        let quiet = tally::checksum([spec, plan, labels].map(tally::checksum));
        let all = tally::checksum([quiet, tally::checksum(journal)]);
        let [journal_inode, journal_bytes] = [journal[0] as u64, journal[1] as u64];
        (spec != [0; 4]).then_some(Stamps { quiet, all, journal_inode, journal_bytes })
    }
}

fn run_folder(db: &Connection, folder: &RunFolder, stamps: &Stamps) -> Answer<Vec<Problem>> {
    let mut tx = begin(db)?;
    let mut job = match jobs::by_id(&tx, folder.id())? {
        Some(job) => job,
        None => jobs::insert(&tx, folder.id())?,
    };
    let mut notices = Vec::new();
    if job.description.stamp != stamps.quiet {
        let (description, settings, problems) = Description::read(folder, stamps.quiet);
        job.describe(description, &settings)?;
        notices = problems;
    }
    let mut seen = stamps.all;
    if let Some(mut reader) = open_journal(&tx, &mut job, folder, stamps)? {
        loop {
            match take_batch(&tx, &mut job, &mut reader)? {
                Batch::Last => break,
                Batch::Full => tx = next_transaction(db, tx, &mut job)?,
                // Looked at again the next time, from the last line that could be read.
                Batch::Unreadable(problem) => {
                    notices.push(*problem);
                    seen = 0;
                    break;
                }
            }
        }
        notices.extend(damaged_lines(&reader, folder));
    }
    jobs::update(&tx, &mut job, seen)?;
    tx.commit()?;
    Ok(notices)
}

fn next_transaction<'a>(db: &'a Connection, tx: Transaction<'a>, job: &mut Job) -> Answer<Transaction<'a>> {
    jobs::update(&tx, job, 0)?;
    tx.commit()?;
    begin(db)
}

fn begin(db: &Connection) -> Answer<Transaction<'_>> {
    Database::log_has_room(db, LOG_BYTES)?;
    Ok(Transaction::new_unchecked(db, TransactionBehavior::Immediate)?)
}

/// The journal where it was left, or from its start where it is another one. `None` where there is none yet.
fn open_journal(tx: &Connection, job: &mut Job, folder: &RunFolder, stamps: &Stamps) -> Answer<Option<Reader>> {
    let (journal, position) = (folder.journal(), job.progress.position);
    let same = position.inode == stamps.journal_inode && position.offset <= stamps.journal_bytes;
    if !same || !continues(&journal, &position) {
        start_over(tx, job)?;
        job.progress.position.inode = stamps.journal_inode;
    }
    if stamps.journal_inode == 0 {
        return Ok(None);
    }
    Ok(Some(Reader::open(&journal, job.progress.position.offset)?))
}

/// False where the file was written anew: no line starts at the offset, or one that was read before.
fn continues(journal: &Path, position: &Position) -> bool {
    if position.offset == 0 {
        return true;
    }
    match Reader::open(journal, position.offset).and_then(|mut reader| reader.next()) {
        Ok(Some((entry, _))) => entry.sequence > position.sequence,
        Ok(None) => true,
        Err(problem) => problem.code != Code::FileTruncated,
    }
}

fn start_over(tx: &Connection, job: &mut Job) -> Answer<()> {
    steps::clear(tx, job.key())?;
    evaluations::clear(tx, job.key())?;
    job.progress = Progress::default();
    Ok(())
}

enum Batch {
    /// The bound was reached: there may be more.
    Full,
    /// The end, for now.
    Last,
    /// The rest cannot be read now.
    Unreadable(Box<Problem>),
}

fn take_batch(tx: &Connection, job: &mut Job, reader: &mut Reader) -> Answer<Batch> {
    for _ in 0..BATCH {
        match reader.next() {
            Ok(Some((entry, offset))) => take_entry(tx, job, &entry, offset)?,
            Ok(None) => return Ok(Batch::Last),
            Err(problem) => return Ok(Batch::Unreadable(Box::new(problem))),
        }
    }
    Ok(Batch::Full)
}

fn take_entry(tx: &Connection, job: &mut Job, entry: &Entry, offset: u64) -> Answer<()> {
    let (key, attempt, at_ms) = (job.key(), entry.attempt, entry.at_ms);
    let progress = &mut job.progress;
    match &entry.event {
        Event::Step(step) => {
            let fresh = progress.steps.rows == 0 || step.step > progress.top_step;
            let row = StepRow { attempt, at_ms, step: step.clone() };
            steps::put(tx, key, &row, fresh, &mut progress.steps)?;
            progress.top_step = progress.top_step.max(step.step);
        }
        // A step that was left out is a gap in the curve: a row without loss, the rest as after the step before it.
        Event::Skipped { step, .. } => {
            let fresh = progress.steps.rows == 0 || *step > progress.top_step;
            let row = StepRow::gap(*step, attempt, at_ms, steps::newest_below(tx, key, *step)?);
            steps::put(tx, key, &row, fresh, &mut progress.steps)?;
            progress.top_step = progress.top_step.max(*step);
        }
        Event::Evaluation { step, loss, tokens, .. } => {
            let row = EvaluationRow { step: *step, attempt, at_ms, loss: *loss, tokens: *tokens };
            evaluations::put(tx, key, &row, &mut progress.evaluations)?;
        }
        _ => {}
    }
    progress.summary.take(entry);
    (progress.position.offset, progress.position.sequence) = (offset, entry.sequence);
    Ok(())
}

fn damaged_lines(reader: &Reader, folder: &RunFolder) -> Option<Problem> {
    let lines = reader.damaged();
    (lines > 0).then(|| {
        Problem::new(Code::FileMalformed, format!("{lines} damaged lines of this journal were left out"))
            .file(&folder.journal())
            .kept("all other lines")
            .remedy("check the disk that holds HOME (dmesg tells more)")
    })
}

fn forget(db: &Connection, id: &str) -> Answer<()> {
    let tx = begin(db)?;
    if let Some(job) = jobs::by_id(&tx, id)? {
        jobs::remove(&tx, &job)?;
    }
    Ok(tx.commit()?)
}
