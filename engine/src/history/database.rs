//! The file `HOME/history.sqlite3`: opened, checked, migrated, and moved aside when it is damaged.
//!
//! Every writer holds `HOME/history.lock` (a flock), so several engines may run at once; readers need no lock. The file may
//! be moved aside under an open connection by another engine, so a writer first asks whether its file is still the one
//! that the name stands for.

use super::failure::{Answer, Failure, KEPT};
use super::{evaluations, jobs, marks, overview, settings, steps};
use protocol::{Code, Outcome, Problem};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// "ANNL": tells our file from another program's.
const APPLICATION_ID: i64 = 0x414e_4e4c;
/// What brings a file from version n to n + 1, for every n. Migrations only add; a released one never changes.
/// Versions 2 to 4 store things another way, so they begin empty: the next ingestion reads all run folders again.
const MIGRATIONS: &[&[&str]] = &[
    &[jobs::SCHEMA_1, steps::SCHEMA_1, evaluations::SCHEMA],
    &[jobs::SCHEMA_2, steps::SCHEMA_2, marks::SCHEMA, "DELETE FROM evaluations;"],
    &[jobs::SCHEMA_3, settings::SCHEMA],
    &[overview::SCHEMA],
];
/// A version further ahead than this is damage, not a newer Anneal.
const VERSIONS_AHEAD: i64 = 1000;
/// Files up to this size have all pages checked on opening (about 25 ms); in larger ones each row proves itself when read.
const CHECKED_BYTES: u64 = 8 << 20;
/// How long one engine waits for another's ingestion: a burst of half a million rows takes a few seconds.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// The log is not let grow beyond this while somebody reads an old state of the file; half of what HOME may lose to it, so
/// that a last batch still fits.
pub const LOG_BYTES: u64 = 32 << 20;
/// Page cache in KiB: the pages that a batch of rows touches fit.
const CACHE_KIB: i64 = 8192;

/// Where the history lies in a HOME.
pub fn path(home: &Path) -> PathBuf {
    home.join("history.sqlite3")
}

/// An open file.
pub struct Database {
    /// The connection.
    pub db: Connection,
    identity: Option<(u64, u64)>,
}

/// The right to write, held until dropped.
pub struct WriteLock {
    _file: OwnedFd,
}

/// Waits for the right to write. Errors: `Busy`.
pub fn lock(home: &Path) -> Outcome<WriteLock> {
    let path = home.join("history.lock");
    let failed = |e: rustix::io::Errno| Problem::io(&e.into(), "locking the history", &path);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    for _ in 0..LOCK_WAIT.as_millis() / LOCK_PAUSE.as_millis() {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(WriteLock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(e) => return Err(failed(e)),
        }
    }
    Err(Problem::new(Code::Busy, "another Anneal has been reading run folders for a long time").file(&path).kept(KEPT))
}

impl Database {
    /// Opens the file, made if it is not there, migrated if it is old. Call with the lock held.
    pub fn open(home: &Path) -> Answer<Database> {
        Database::open_with(home, MIGRATIONS)
    }

    fn open_with(home: &Path, migrations: &[&[&str]]) -> Answer<Database> {
        let path = path(home);
        let mut db = Connection::open(&path)?;
        db.busy_timeout(Duration::from_secs(5))?;
        let version = version(&db, migrations.len() as i64, &path)?;
        configure(&db)?;
        check(&db, &path)?;
        migrate(&mut db, version as usize, migrations, home)?;
        let _ = fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600));
        Ok(Database { db, identity: identity(&path) })
    }

    /// A second connection to a file that this process has opened and checked before.
    pub fn another(home: &Path) -> Answer<Database> {
        let path = path(home);
        let db = Connection::open(&path)?;
        db.busy_timeout(Duration::from_secs(5))?;
        configure(&db)?;
        Ok(Database { db, identity: identity(&path) })
    }

    /// Refuses to write more while another program's long read keeps the log from being folded into the file. The rows wait
    /// in the journals. Errors: `Busy`.
    pub fn log_has_room(db: &Connection, limit: u64) -> Answer<()> {
        let Some(path) = db.path().map(|path| format!("{path}-wal")) else { return Ok(()) };
        if fs::metadata(&path).map_or(0, |status| status.len()) < limit {
            return Ok(());
        }
        let (frames, folded): (i64, i64) =
            db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get(1)?, row.get(2)?)))?;
        if folded >= frames {
            return Ok(());
        }
        Err(Problem::new(Code::Busy, "new rows wait: another program has been reading the history for a long time")
            .file(Path::new(&path))
            .kept(KEPT)
            .remedy("close the program that holds history.sqlite3 open")
            .into())
    }

    /// False once the name stands for another file, or for none.
    pub fn is_current(&self, home: &Path) -> bool {
        self.identity.is_some() && self.identity == identity(&path(home))
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|status| (status.dev(), status.ino()))
}

/// Version of the file's schema, 0 for a new file. Decides before anything is written.
fn version(db: &Connection, latest: i64, path: &Path) -> Answer<i64> {
    let number = |pragma| db.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0));
    let (version, application) = (number("user_version")?, number("application_id")?);
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if (version, tables) == (0, 0) {
        return Ok(0);
    }
    let ours = application == APPLICATION_ID && (1..=latest + VERSIONS_AHEAD).contains(&version);
    if !ours || (version > latest && !is_sound(db)?) {
        return Err(Failure::Damaged(format!("the header names version {version} of application {application:#x}")));
    }
    if version > latest {
        // The last connection of a file writes its log back when it closes; a newer file is left as it is.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        return Err(newer(version, latest, path).into());
    }
    Ok(version)
}

fn newer(version: i64, latest: i64, path: &Path) -> Problem {
    let what = format!("the history has version {version}; this Anneal knows versions up to {latest}");
    Problem::new(Code::HistoryNewer, what)
        .file(path)
        .kept("the history, unchanged")
        .remedy("use the newer Anneal, or move the file away: it is built again from the run folders")
}

/// WAL lets readers go on while rows come in. NORMAL loses at most the newest rows in a power cut, never the file, and the
/// offset goes with the rows.
fn configure(db: &Connection) -> Answer<()> {
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // After a burst the log is cut back to this size.
    db.pragma_update(None, "journal_size_limit", 16 << 20)?;
    db.set_prepared_statement_cache_capacity(32);
    Ok(())
}

fn check(db: &Connection, path: &Path) -> Answer<()> {
    let bytes = fs::metadata(path).map_or(0, |status| status.len());
    if bytes <= CHECKED_BYTES && !is_sound(db)? {
        return Err(Failure::Damaged("pages contradict each other".into()));
    }
    Ok(())
}

fn is_sound(db: &Connection) -> Answer<bool> {
    Ok(db.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))? == "ok")
}

/// All steps in one transaction: the file has the old schema or the new one.
fn migrate(db: &mut Connection, from: usize, migrations: &[&[&str]], home: &Path) -> Answer<()> {
    if from == migrations.len() {
        return Ok(());
    }
    if from > 0 {
        back_up(db, &home.join(format!("history-version-{from}.sqlite3")))?;
    }
    let tx = db.transaction()?;
    for statements in migrations[from..].iter().flat_map(|m| m.iter()) {
        tx.execute_batch(statements)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", migrations.len() as i64)?;
    Ok(tx.commit()?)
}

/// Under a name of its own until it is whole; a backup that is there already is the same one.
fn back_up(db: &Connection, to: &Path) -> Answer<()> {
    let io = |e: std::io::Error| Problem::io(&e, "backing the history up", to);
    let unfinished = to.with_extension("sqlite3.part");
    match fs::remove_file(&unfinished) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(io(e).into()),
        _ => {}
    }
    db.execute("VACUUM INTO ?", [unfinished.to_string_lossy()])?;
    let synced = fs::File::open(&unfinished).and_then(|file| file.sync_all());
    Ok(synced.and_then(|()| fs::rename(&unfinished, to)).map_err(io)?)
}

/// Moves the file with its log and shared memory into `HOME/history-damaged-<time>/`. Call with the lock held and no
/// connection open here. Gives the folder.
pub fn move_aside(home: &Path, now_ms: i64) -> Outcome<PathBuf> {
    let folder = fresh_folder(home, now_ms)?;
    for end in ["", "-wal", "-shm"] {
        let from = PathBuf::from(format!("{}{end}", path(home).display()));
        let Some(name) = from.file_name() else { continue };
        match fs::rename(&from, folder.join(name)) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(Problem::io(&e, "moving the damaged history aside", &from).kept(KEPT));
            }
            _ => {}
        }
    }
    Ok(folder)
}

/// Two within one second get different names.
fn fresh_folder(home: &Path, now_ms: i64) -> Outcome<PathBuf> {
    let time = jiff::Timestamp::from_millisecond(now_ms).unwrap_or_default().strftime("%Y%m%dT%H%M%SZ").to_string();
    for n in 1..1000 {
        let end = if n == 1 { String::new() } else { format!("-{n}") };
        let folder = home.join(format!("history-damaged-{time}{end}"));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Problem::io(&e, "making a folder for the damaged history", &folder).kept(KEPT)),
        }
    }
    Err(Problem::new(Code::HistoryFailed, "HOME is full of damaged histories").file(home).kept(KEPT))
}

/// A file as version 1 left it, with a row in each table.
#[cfg(test)]
pub fn make_version_1(home: &Path) {
    let old = Database::open_with(home, &MIGRATIONS[..1]).unwrap();
    let rows = "INSERT INTO jobs VALUES ('a-finished', 1, '{}', '{}', '{}', 2); UPDATE totals SET rows = 1, sum = 2;
        INSERT INTO steps VALUES (1, 2, 3, 4, 5.0, 6.0, 7.0, 8, 9, 10.0, 11.0, 12.0, 13);
        INSERT INTO evaluations VALUES (1, 2, 3, 4, 5.0, 6, 7);";
    old.db.execute_batch(rows).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_of(home: &Path) -> i64 {
        let db = Connection::open(path(home)).unwrap();
        db.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_history_of_a_newer_anneal_is_refused_and_unchanged() {
        let home = tempfile::tempdir().unwrap();
        let longer = [MIGRATIONS, &[&["CREATE TABLE extra (x INTEGER) STRICT;"]]].concat();
        drop(Database::open_with(home.path(), &longer).unwrap());
        let before = fs::read(path(home.path())).unwrap();
        let Err(Failure::Refused(problem)) = Database::open(home.path()) else { panic!("opened") };
        assert_eq!(problem.code, Code::HistoryNewer);
        assert!(fs::read(path(home.path())).unwrap() == before);
    }

    #[test]
    fn an_old_history_is_backed_up_and_migrated() {
        let home = tempfile::tempdir().unwrap();
        let old = Database::open(home.path()).unwrap();
        jobs::insert(&old.db, "kept").unwrap();
        drop(old);
        let longer = [MIGRATIONS, &[&["ALTER TABLE jobs ADD COLUMN extra INTEGER;"]]].concat();
        let new = Database::open_with(home.path(), &longer).unwrap();
        assert!(jobs::by_id(&new.db, "kept").unwrap().is_some());
        drop(new);
        assert_eq!(version_of(home.path()), longer.len() as i64);
        let backup = format!("history-version-{}.sqlite3", MIGRATIONS.len());
        let backup = Connection::open(home.path().join(backup)).unwrap();
        assert!(jobs::by_id(&backup, "kept").unwrap().is_some());
    }

    #[test]
    fn a_migration_that_fails_half_way_leaves_the_old_schema() {
        let home = tempfile::tempdir().unwrap();
        drop(Database::open(home.path()).unwrap());
        let half: &[&str] = &["CREATE TABLE half (x INTEGER) STRICT;", "CREATE TABLE jobs (again INTEGER);"];
        assert!(Database::open_with(home.path(), &[MIGRATIONS, &[half]].concat()).is_err());
        assert_eq!(version_of(home.path()), MIGRATIONS.len() as i64);
        let db = Database::open(home.path()).unwrap().db;
        let halves: i64 =
            db.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'half'", [], |r| r.get(0)).unwrap();
        assert_eq!(halves, 0);
    }

    #[test]
    fn another_programs_file_is_not_taken_for_ours() {
        let home = tempfile::tempdir().unwrap();
        Connection::open(path(home.path())).unwrap().execute_batch("CREATE TABLE jobs (x INTEGER);").unwrap();
        assert!(matches!(Database::open(home.path()), Err(Failure::Damaged(_))));
        fs::write(path(home.path()), "not a database at all, only some text").unwrap();
        assert!(matches!(Database::open(home.path()), Err(Failure::Damaged(_))));
    }

    #[test]
    fn a_reader_that_never_ends_stops_the_log_from_growing_and_loses_nothing() {
        let home = tempfile::tempdir().unwrap();
        let history = Database::open(home.path()).unwrap();
        jobs::insert(&history.db, "first").unwrap();
        let other = Connection::open(path(home.path())).unwrap();
        let reading = other.unchecked_transaction().unwrap();
        assert!(jobs::by_id(&reading, "first").unwrap().is_some());
        let limit = 200_000;
        let filled = (0..1000).find(|i| {
            jobs::insert(&history.db, &format!("job{i}")).unwrap();
            Database::log_has_room(&history.db, limit).is_err()
        });
        assert!(filled.is_some(), "the log grew on");
        assert!(fs::metadata(home.path().join("history.sqlite3-wal")).unwrap().len() < 2 * limit);
        drop(reading);
        Database::log_has_room(&history.db, limit).unwrap();
        assert_eq!(jobs::totals(&history.db).unwrap().0.rows as usize, filled.unwrap() + 2);
    }

    #[test]
    fn two_moved_aside_in_one_second_are_both_kept() {
        let home = tempfile::tempdir().unwrap();
        let mut folders = Vec::new();
        for text in ["one", "two"] {
            fs::write(path(home.path()), text).unwrap();
            folders.push(move_aside(home.path(), 1_767_225_600_000).unwrap());
        }
        assert!(folders[0].ends_with("history-damaged-20260101T000000Z"));
        let kept = folders.iter().map(|f| fs::read_to_string(f.join("history.sqlite3")).unwrap());
        assert_eq!(kept.collect::<Vec<_>>(), ["one", "two"]);
    }
}
