//! From run folders to rows. Each journal is read from the offset that was stored with the rows before it, in the same
//! transaction: whatever ends the reading, every row is there exactly once.

use super::database::{Database, LOG_BYTES};
use super::description::Description;
use super::evaluations::{self, EvaluationRow};
use super::failure::Answer;
use super::jobs::{self, Job, Position, Progress};
use super::list::JobList;
use super::steps::{self, StepRow, Writing};
use super::{marks, tally};
use protocol::{Code, Entry, Event, Problem};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use rustix::fs::{AtFlags, Mode, OFlags, statat};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use store::home::Home;
use store::journal::Reader;
use store::run::RunFolder;

/// Journal entries in one transaction: about 1 MB of pages, and a fiftieth of a second.
const BATCH: usize = 10_000;

/// Brings the tables, and the list with them, up to the run folders. Call with the lock held. Gives notices about single
/// folders.
pub fn run_folders(db: &Connection, home: &Home, list: &mut JobList) -> Answer<Vec<Problem>> {
    list.refresh(db)?;
    // Sorted.
    let ids = home.run_ids()?;
    let notices = changed_folders(db, home, ids.iter().map(String::as_str), list)?;
    let is_gone = |id: &&String| ids.binary_search(id).is_err();
    let gone: Vec<String> = list.iter().map(|job| &job.id).filter(is_gone).cloned().collect();
    for id in gone.iter().filter(|id| Stamps::of(&home.runs().join(id)).is_none()) {
        forget(db, id)?;
        list.forget(id);
    }
    list.refresh(db)?;
    Ok(notices)
}

/// The same for the folders of living jobs alone, and of those whose id begins like one that is `asked` for.
pub fn living(db: &Connection, home: &Home, list: &mut JobList, asked: Option<&str>) -> Answer<Vec<Problem>> {
    list.refresh(db)?;
    let asked = asked.map_or_else(Vec::new, |id| list.beginning_with(id));
    let is_wanted = |job: &&Job| job.progress.summary.state.is_alive() || asked.contains(&job.id);
    let wanted = list.iter().filter(is_wanted);
    let notices = changed_folders(db, home, wanted.map(|job| job.id.as_str()), list)?;
    list.refresh(db)?;
    Ok(notices)
}

/// A change within this time before a look may not be the last one that bears its time: clocks of file systems tick every
/// few milliseconds, and who takes a ticket writes the first event a moment later.
const SETTLED_MS: i64 = 10_000;

/// The two folders that change when a job is made, removed or started again: every start of a job takes a ticket.
#[derive(Clone, Default)]
pub struct Watched {
    seen: Option<[Stamp; 2]>,
    /// When they were looked at.
    at_ms: i64,
}

impl Watched {
    /// Remembers what they look like, before all run folders are read.
    pub fn look(&mut self, home: &Home) {
        (self.seen, self.at_ms) = (Some(Watched::stamps(home)), super::now_ms());
    }

    /// True where a job may be new, gone or started again since.
    pub fn changed(&self, home: &Home) -> bool {
        let now = Watched::stamps(home);
        let newest_ms = now.iter().map(|[_, _, seconds, _]| seconds.saturating_mul(1000)).max().unwrap_or(i64::MAX);
        // Compared with the time of the last look: changes long before it cannot have been missed by it.
        self.seen != Some(now) || newest_ms.saturating_add(SETTLED_MS) > self.at_ms
    }

    fn stamps(home: &Home) -> [Stamp; 2] {
        [stamp(&home.runs()), stamp(&home.queue())]
    }
}

fn changed_folders<'a>(
    db: &Connection,
    home: &Home,
    ids: impl Iterator<Item = &'a str>,
    list: &JobList,
) -> Answer<Vec<Problem>> {
    let (mut notices, mut runs) = (Vec::new(), Runs::open(home)?);
    for id in ids {
        if list.get(id).is_some_and(|job| is_unchanged(job, &mut runs)) {
            continue;
        }
        let path = runs.path.join(id);
        // One that was deleted a moment ago is no news.
        let (Some(stamps), Ok(folder)) = (Stamps::of(&path), RunFolder::of(home, id)) else { continue };
        notices.extend(run_folder(db, &folder, &stamps)?);
    }
    Ok(notices)
}

fn is_unchanged(job: &Job, runs: &mut Runs) -> bool {
    let mended = |path: &Path| Stamps::of(path).is_some_and(|stamps| stamps.quiet != job.description.stamp);
    job.seen == runs.seen(&job.id) && !(job.description.incomplete && mended(&runs.path.join(&job.id)))
}

type Stamp = [i64; 4];

/// Inode, size and time of a file; zeros where there is none.
fn stamp(path: &Path) -> Stamp {
    std::fs::symlink_metadata(path)
        .map_or([0; 4], |status| [status.ino() as i64, status.size() as i64, status.mtime(), status.mtime_nsec()])
}

/// The folder of all run folders, open: the kernel then walks two names for a file and not the whole way to HOME, which
/// with ten thousand jobs is most of what looking at them costs.
struct Runs {
    path: PathBuf,
    folder: OwnedFd,
    name: String,
}

impl Runs {
    fn open(home: &Home) -> Answer<Runs> {
        let (path, flags) = (home.runs(), OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH);
        let failed = |e: rustix::io::Errno| Problem::io(&e.into(), "reading a folder", &path);
        let folder = rustix::fs::open(&path, flags, Mode::empty()).map_err(failed)?;
        Ok(Runs { path, folder, name: String::new() })
    }

    /// Of the two files of a run folder that change; the others are written before the folder has its name.
    fn seen(&mut self, id: &str) -> i64 {
        seen_of(self.stamp(id, "/labels.toml"), self.stamp(id, "/journal.jsonl"))
    }

    fn stamp(&mut self, id: &str, file: &str) -> Stamp {
        self.name.clear();
        self.name.extend([id, file]);
        statat(&self.folder, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW).map_or([0; 4], |status| {
            [status.st_ino as i64, status.st_size, status.st_mtime, status.st_mtime_nsec as i64]
        })
    }
}

fn seen_of(labels: Stamp, journal: Stamp) -> i64 {
    tally::checksum([labels, journal].map(tally::checksum))
}

/// What a run folder's files looked like before they were read.
struct Stamps {
    quiet: i64,
    seen: i64,
    journal_inode: u64,
    journal_bytes: u64,
}

impl Stamps {
    /// `None` where this is no run folder.
    fn of(folder: &Path) -> Option<Stamps> {
        let of = |name: &str| stamp(&folder.join(name));
        let [spec, plan, labels, journal] = ["job.toml", "plan.json", "labels.toml", "journal.jsonl"].map(of);
        let quiet = tally::checksum([spec, plan, labels].map(tally::checksum));
        let [journal_inode, journal_bytes] = [journal[0] as u64, journal[1] as u64];
        (spec != [0; 4]).then_some(Stamps { quiet, seen: seen_of(labels, journal), journal_inode, journal_bytes })
    }
}

fn run_folder(db: &Connection, folder: &RunFolder, stamps: &Stamps) -> Answer<Vec<Problem>> {
    let mut tx = begin(db)?;
    let mut job = match jobs::by_id(&tx, folder.id())? {
        Some(job) => job,
        None => jobs::insert(&tx, folder.id())?,
    };
    let (mut notices, mut seen) = (Vec::new(), stamps.seen);
    if job.description.stamp != stamps.quiet {
        let (description, settings, problems) = Description::read(folder, stamps.quiet, &job.description);
        job.describe(description, &settings)?;
        notices = problems;
    }
    let mut steps = Writing::new(job.key());
    if let Some(mut reader) = open_journal(&tx, &mut job, folder, stamps)? {
        loop {
            let batch = take_batch(&tx, &mut job, &mut steps, &mut reader)?;
            steps.close(&tx, &mut job.progress.steps)?;
            match batch {
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
    marks::clear(tx, job.key())?;
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

fn take_batch(tx: &Connection, job: &mut Job, steps: &mut Writing, reader: &mut Reader) -> Answer<Batch> {
    let key = job.key();
    for _ in 0..BATCH {
        match reader.next() {
            Ok(Some((entry, offset))) => take_entry(tx, key, &mut job.progress, steps, entry, offset)?,
            Ok(None) => return Ok(Batch::Last),
            Err(problem) => return Ok(Batch::Unreadable(Box::new(problem))),
        }
    }
    Ok(Batch::Full)
}

fn take_entry(
    tx: &Connection,
    key: i64,
    progress: &mut Progress,
    steps: &mut Writing,
    entry: Entry,
    offset: u64,
) -> Answer<()> {
    progress.summary.take(&entry);
    (progress.position.offset, progress.position.sequence) = (offset, entry.sequence);
    let (attempt, at_ms) = (entry.attempt, entry.at_ms);
    match entry.event {
        Event::Step(step) => steps.put(tx, StepRow { attempt, at_ms, step }, &mut progress.steps),
        Event::Evaluation { step, loss, tokens, .. } => {
            let row = EvaluationRow { step, attempt, at_ms, loss, tokens };
            evaluations::put(tx, key, &row, &mut progress.evaluations)
        }
        // A step that was left out is a gap in the curve: a row without loss, the rest as after the step before it.
        Event::Skipped { step, .. } => {
            marks::put(tx, key, &entry, &mut progress.marks)?;
            let before = steps.newest_below(tx, step, &mut progress.steps)?;
            steps.put(tx, StepRow::gap(step, attempt, at_ms, before), &mut progress.steps)
        }
        _ => marks::put(tx, key, &entry, &mut progress.marks),
    }
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
