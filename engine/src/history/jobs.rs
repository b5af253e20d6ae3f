//! Tables `jobs` (one row a run folder) and `totals` (one row: the tally of `jobs`).

use super::description::{Description, Settings};
use super::failure::{Answer, Failure};
use super::summary::Summary;
use super::tally::{self, Tally};
use super::{evaluations, steps};
use protocol::Problem;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The tables as first made. `seen` is a hash of the run folder's file stamps: equal means that nothing is new.
pub const SCHEMA: &str = "
    CREATE TABLE jobs (
        id TEXT NOT NULL PRIMARY KEY, seen INTEGER NOT NULL,
        progress TEXT NOT NULL, description TEXT NOT NULL, settings TEXT NOT NULL, checksum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE totals (one INTEGER PRIMARY KEY CHECK (one = 1), rows INTEGER NOT NULL, sum INTEGER NOT NULL) STRICT;
    INSERT INTO totals VALUES (1, 0, 0);";

/// How far a job's journal has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Inode of the journal; another one is another journal.
    pub inode: u64,
    /// Bytes read.
    pub offset: u64,
    /// Sequence of the last entry read.
    pub sequence: u64,
}

/// What the journal has told so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// How far it was read.
    pub position: Position,
    /// What it came to.
    pub summary: Summary,
    /// Tally of the job's rows in `steps`.
    pub steps: Tally,
    /// Highest step among them.
    pub top_step: u64,
    /// Tally of the job's rows in `evaluations`.
    pub evaluations: Tally,
}

/// A row of `jobs`.
#[derive(Clone, Debug)]
pub struct Job {
    /// Id: the run folder's name.
    pub id: String,
    /// What the journal has told.
    pub progress: Progress,
    /// What the other files of the run folder say.
    pub description: Description,
    /// JSON of [`Settings`].
    settings: String,
    checksum: i64,
}

impl Job {
    /// What stands for the job in the other tables: a hash of its id. Derived, so that no damage can swap two jobs.
    pub fn key(&self) -> i64 {
        tally::text(&self.id)
    }

    /// Takes over what the quiet files of the run folder say.
    pub fn describe(&mut self, description: Description, settings: &Settings) -> Answer<()> {
        (self.description, self.settings) = (description, json(settings)?);
        Ok(())
    }

    /// Settings under their dotted keys.
    pub fn settings(&self) -> Settings {
        // The checksum has vouched for the text.
        serde_json::from_str(&self.settings).unwrap_or_default()
    }
}

/// Columns of a row as they are stored.
struct Stored {
    id: String,
    progress: String,
    description: String,
    settings: String,
    checksum: i64,
}

impl Stored {
    fn read(row: &Row<'_>) -> rusqlite::Result<Stored> {
        let (id, progress, description) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Stored { id, progress, description, settings: row.get(3)?, checksum: row.get(4)? })
    }

    fn open(self) -> Answer<Job> {
        let damaged = |what: &str| Failure::Damaged(format!("job {}: {what}", self.id.escape_debug()));
        if checksum(&self.id, &self.progress, &self.description, &self.settings) != self.checksum {
            return Err(damaged("wrong checksum"));
        }
        let progress = serde_json::from_str(&self.progress).map_err(|e| damaged(&e.to_string()))?;
        let description = serde_json::from_str(&self.description).map_err(|e| damaged(&e.to_string()))?;
        Ok(Job { id: self.id, progress, description, settings: self.settings, checksum: self.checksum })
    }
}

fn checksum(id: &str, progress: &str, description: &str, settings: &str) -> i64 {
    tally::checksum([id, progress, description, settings].map(tally::text))
}

const COLUMNS: &str = "id, progress, description, settings, checksum";

/// A job by its full id.
pub fn by_id(db: &Connection, id: &str) -> Answer<Option<Job>> {
    let mut query = db.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE id = ?"))?;
    query.query_row([id], Stored::read).optional()?.map(Stored::open).transpose()
}

/// All jobs, held against `totals`. Call inside a transaction, so that both are of one moment.
pub fn all(db: &Connection) -> Answer<Vec<Job>> {
    let mut query = db.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs"))?;
    let mut rows = query.query([])?;
    let (mut jobs, mut found) = (Vec::new(), Tally::default());
    while let Some(row) = rows.next()? {
        let job = Stored::read(row)?.open()?;
        found.add(job.checksum);
        jobs.push(job);
    }
    if found != totals(db)? {
        return Err(Failure::Damaged(format!(
            "{} jobs are listed, and they are not those that were written",
            jobs.len()
        )));
    }
    Ok(jobs)
}

/// Ids that begin so, three at most.
pub fn beginning_with(db: &Connection, beginning: &str) -> Answer<Vec<String>> {
    let mut query =
        db.prepare_cached("SELECT id FROM jobs WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT 3")?;
    let ids = query.query_map([beginning], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(ids)
}

/// What was seen of each run folder.
pub fn seen(db: &Connection) -> Answer<HashMap<String, i64>> {
    let mut query = db.prepare_cached("SELECT id, seen FROM jobs")?;
    let seen = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    Ok(seen)
}

/// A new row of which nothing is known yet.
pub fn insert(db: &Connection, id: &str) -> Answer<Job> {
    let (progress, description, settings) = (Progress::default(), Description::default(), json(&Settings::new())?);
    let mut job = Job { id: id.to_owned(), progress, description, settings, checksum: 0 };
    let (progress, description) = (json(&job.progress)?, json(&job.description)?);
    job.checksum = checksum(id, &progress, &description, &job.settings);
    db.prepare_cached("INSERT INTO jobs VALUES (?, 0, ?, ?, ?, ?)")?.execute(params![
        id,
        progress,
        description,
        job.settings,
        job.checksum
    ])?;
    change_totals(db, |totals| totals.add(job.checksum))?;
    Ok(job)
}

/// Writes a row's new contents.
pub fn update(db: &Connection, job: &mut Job, seen: i64) -> Answer<()> {
    let (progress, description) = (json(&job.progress)?, json(&job.description)?);
    let (before, after) = (job.checksum, checksum(&job.id, &progress, &description, &job.settings));
    let change = "UPDATE jobs SET seen = ?, progress = ?, description = ?, settings = ?, checksum = ? WHERE id = ?";
    db.prepare_cached(change)?.execute(params![seen, progress, description, job.settings, after, job.id])?;
    job.checksum = after;
    change_totals(db, |totals| {
        totals.remove(before);
        totals.add(after);
    })
}

/// Removes a job with all that is known of it.
pub fn remove(db: &Connection, job: &Job) -> Answer<()> {
    steps::clear(db, job.key())?;
    evaluations::clear(db, job.key())?;
    db.prepare_cached("DELETE FROM jobs WHERE id = ?")?.execute([&job.id])?;
    change_totals(db, |totals| totals.remove(job.checksum))
}

fn json<T: Serialize>(value: &T) -> Answer<String> {
    Ok(serde_json::to_string(value).map_err(|e| Problem::internal(format!("a job cannot be written as JSON: {e}")))?)
}

fn totals(db: &Connection) -> Answer<Tally> {
    let mut query = db.prepare_cached("SELECT rows, sum FROM totals WHERE one = 1")?;
    Ok(query.query_row([], |row| Ok(Tally { rows: row.get(0)?, sum: row.get(1)? }))?)
}

fn change_totals(db: &Connection, change: impl FnOnce(&mut Tally)) -> Answer<()> {
    let mut new = totals(db)?;
    change(&mut new);
    db.prepare_cached("UPDATE totals SET rows = ?, sum = ? WHERE one = 1")?.execute([new.rows, new.sum])?;
    Ok(())
}
