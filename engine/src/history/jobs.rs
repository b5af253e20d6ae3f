//! Tables `jobs` (one row a run folder) and `totals` (one row: the tally of `jobs`, and how often they changed).

use super::description::{Description, Settings};
use super::failure::{Answer, Failure};
use super::summary::Summary;
use super::tally::{self, Tally};
use super::{evaluations, marks, settings, steps};
use protocol::Problem;
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

/// The tables as first made. `seen` is a hash of the run folder's file stamps: equal means that nothing is new.
pub const SCHEMA_1: &str = "
    CREATE TABLE jobs (
        id TEXT NOT NULL PRIMARY KEY, seen INTEGER NOT NULL,
        progress TEXT NOT NULL, description TEXT NOT NULL, settings TEXT NOT NULL, checksum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE totals (one INTEGER PRIMARY KEY CHECK (one = 1), rows INTEGER NOT NULL, sum INTEGER NOT NULL) STRICT;
    INSERT INTO totals VALUES (1, 0, 0);";

/// What version 2 added: `changed` of a job is the count of `changes` at its last change, so that who knows the jobs of one
/// moment reads only those that changed since.
pub const SCHEMA_2: &str = "
    DELETE FROM jobs;
    UPDATE totals SET rows = 0, sum = 0;
    ALTER TABLE jobs ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX jobs_changed ON jobs (changed);
    ALTER TABLE totals ADD COLUMN changes INTEGER NOT NULL DEFAULT 0;";

/// What version 3 added: `settings_checksum`, of the job's row in table `settings`; column `settings` is empty since. Nothing
/// is kept: the run folders are read again.
pub const SCHEMA_3: &str = "
    DELETE FROM jobs;
    DELETE FROM blocks;
    DELETE FROM evaluations;
    DELETE FROM marks;
    UPDATE totals SET rows = 0, sum = 0;
    ALTER TABLE jobs ADD COLUMN settings_checksum INTEGER NOT NULL DEFAULT 0;";

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
    /// Tally of the job's rows in `blocks`.
    pub steps: Tally,
    /// Tally of the job's rows in `evaluations`.
    pub evaluations: Tally,
    /// Tally of the job's rows in `marks`.
    pub marks: Tally,
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
    /// Hash of the run folder's file stamps when it was read; equal means that nothing is new.
    pub seen: i64,
    /// Checksum of the JSON of its [`Settings`].
    pub settings: i64,
    /// That JSON, where it is still to be written.
    new_settings: Option<String>,
    /// Of the row.
    pub checksum: i64,
}

impl Job {
    /// What stands for the job in the other tables: a hash of its id. Derived, so that no damage can swap two jobs.
    pub fn key(&self) -> i64 {
        tally::text(&self.id)
    }

    /// Takes over what the quiet files of the run folder say.
    pub fn describe(&mut self, description: Description, settings: &Settings) -> Answer<()> {
        let settings = json(settings)?;
        (self.description, self.settings) = (description, tally::text(&settings));
        self.new_settings = Some(settings);
        Ok(())
    }
}

const COLUMNS: &str = "id, seen, progress, description, settings_checksum, checksum";

fn read(row: &Row<'_>) -> Answer<Job> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let (id, progress, description, settings) = (text(0)?, text(2)?, text(3)?, row.get(4)?);
    let damaged = |what: &str| Failure::Damaged(format!("job {}: {what}", id.escape_debug()));
    let found = checksum(id, progress, description, settings);
    if found != row.get::<_, i64>(5)? {
        return Err(damaged("wrong checksum"));
    }
    Ok(Job {
        id: id.to_owned(),
        seen: row.get(1)?,
        progress: serde_json::from_str(progress).map_err(|e| damaged(&e.to_string()))?,
        description: serde_json::from_str(description).map_err(|e| damaged(&e.to_string()))?,
        settings,
        new_settings: None,
        checksum: found,
    })
}

fn checksum(id: &str, progress: &str, description: &str, settings: i64) -> i64 {
    let [id, progress, description] = [id, progress, description].map(tally::text);
    tally::checksum([id, progress, description, settings])
}

/// A job by its full id.
pub fn by_id(db: &Connection, id: &str) -> Answer<Option<Job>> {
    let mut query = db.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE id = ?"))?;
    let mut rows = query.query([id])?;
    rows.next()?.map(read).transpose()
}

/// Hands each job to `each` that changed after the count of changes was `after`; all of them after -1.
pub fn changed_after(db: &Connection, after: i64, each: &mut dyn FnMut(Job)) -> Answer<()> {
    // Without the condition where all are wanted: the index would only make that slower.
    let condition = if after < 0 { "WHERE ? < 0" } else { "WHERE changed > ?" };
    let mut query = db.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs {condition}"))?;
    let mut rows = query.query([after])?;
    while let Some(row) = rows.next()? {
        each(read(row)?);
    }
    Ok(())
}

/// A new row of which nothing is known yet.
pub fn insert(db: &Connection, id: &str) -> Answer<Job> {
    let (progress, description) = (Progress::default(), Description::default());
    let mut job =
        Job { id: id.to_owned(), progress, description, settings: 0, new_settings: None, seen: 0, checksum: 0 };
    job.describe(Description::default(), &Settings::new())?;
    let (progress, description) = (json(&job.progress)?, json(&job.description)?);
    job.checksum = checksum(id, &progress, &description, job.settings);
    let changes = change_totals(db, |totals| totals.add(job.checksum))?;
    db.prepare_cached("INSERT INTO jobs VALUES (?, 0, ?, ?, '', ?, ?, ?)")?.execute(params![
        id,
        progress,
        description,
        job.checksum,
        changes,
        job.settings
    ])?;
    write_settings(db, &mut job)?;
    Ok(job)
}

/// Writes a row's new contents.
pub fn update(db: &Connection, job: &mut Job, seen: i64) -> Answer<()> {
    let (progress, description) = (json(&job.progress)?, json(&job.description)?);
    let (before, after) = (job.checksum, checksum(&job.id, &progress, &description, job.settings));
    let changes = change_totals(db, |totals| {
        totals.remove(before);
        totals.add(after);
    })?;
    let change =
        "UPDATE jobs SET seen = ?, progress = ?, description = ?, settings_checksum = ?, checksum = ?, changed = ?
        WHERE id = ?";
    db.prepare_cached(change)?.execute(params![seen, progress, description, job.settings, after, changes, job.id])?;
    (job.seen, job.checksum) = (seen, after);
    write_settings(db, job)
}

fn write_settings(db: &Connection, job: &mut Job) -> Answer<()> {
    job.new_settings.take().map_or(Ok(()), |text| settings::put(db, &job.id, &text))
}

/// Removes a job with all that is known of it.
pub fn remove(db: &Connection, job: &Job) -> Answer<()> {
    steps::clear(db, job.key())?;
    evaluations::clear(db, job.key())?;
    marks::clear(db, job.key())?;
    settings::clear(db, &job.id)?;
    db.prepare_cached("DELETE FROM jobs WHERE id = ?")?.execute([&job.id])?;
    change_totals(db, |totals| totals.remove(job.checksum)).map(drop)
}

fn json<T: Serialize>(value: &T) -> Answer<String> {
    Ok(serde_json::to_string(value).map_err(|e| Problem::internal(format!("a job cannot be written as JSON: {e}")))?)
}

/// The tally of all jobs, and how often one changed.
pub fn totals(db: &Connection) -> Answer<(Tally, i64)> {
    let mut query = db.prepare_cached("SELECT rows, sum, changes FROM totals WHERE one = 1")?;
    Ok(query.query_row([], |row| Ok((Tally { rows: row.get(0)?, sum: row.get(1)? }, row.get(2)?)))?)
}

/// Gives the new count of changes.
fn change_totals(db: &Connection, change: impl FnOnce(&mut Tally)) -> Answer<i64> {
    let (mut new, changes) = totals(db)?;
    change(&mut new);
    let changes = changes.wrapping_add(1);
    db.prepare_cached("UPDATE totals SET rows = ?, sum = ?, changes = ? WHERE one = 1")?
        .execute([new.rows, new.sum, changes])?;
    Ok(changes)
}
