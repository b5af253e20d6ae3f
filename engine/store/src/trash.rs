//! Deleted jobs: a run folder moves to `HOME/trash/ID/` with the time, comes back until its grace period is over, and is
//! freed then or at once.

use crate::disk::{self, Disk, RealDisk};
use crate::home::{Home, check_id, ids_in};
use crate::lock;
use crate::run::RunFolder;
use protocol::{Code, Outcome, Problem};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How long a deleted job can come back: a week.
pub const GRACE_MS: i64 = 7 * 24 * 3600 * 1000;
/// Time that another's move of a run folder may take.
const MOVE: std::time::Duration = std::time::Duration::from_millis(200);
/// File in a trashed folder that says when it was deleted.
const RECORD: &str = "deleted.json";
/// Bytes of that record that are read: ours have 30.
const RECORD_BYTES: u64 = 1024;

/// A deleted job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trashed {
    /// Id of the run.
    pub id: String,
    /// When it was deleted, milliseconds since the Unix epoch; `None` where the record is unreadable.
    pub deleted_ms: Option<i64>,
    /// Its folder in the trash.
    pub path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Record {
    deleted_ms: i64,
}

/// Moves a run to the trash.
/// Errors: `NotFound`; `WrongState` where it is in the trash already; `Busy` while it is being run; `DiskFailed`, where it
/// stays.
pub fn delete(home: &Home, id: &str, now_ms: i64) -> Outcome<Trashed> {
    // Whoever else deletes it at this moment holds the lock for as long as the move takes.
    let until = std::time::Instant::now() + MOVE;
    loop {
        match try_delete(home, id, now_ms) {
            Err(_) if home.run(id).is_ok_and(|path| !path.exists()) && trashed(home, id).is_ok() => {
                return Err(already(id));
            }
            Err(problem) if problem.code == Code::Busy && std::time::Instant::now() < until => {
                std::thread::sleep(MOVE / 10);
            }
            done => return done,
        }
    }
}

/// The job is where a delete would bring it.
pub fn already(id: &str) -> Problem {
    Problem::new(Code::WrongState, format!("job {id} is already in the trash"))
        .kept("the job, until a week after it was deleted")
        .remedy("nothing to do")
}

fn try_delete(home: &Home, id: &str, now_ms: i64) -> Outcome<Trashed> {
    let run = RunFolder::of(home, id)?;
    // Held across the move, so that nobody starts the job in between.
    let Some(_held) = lock::try_lock(&run.lock())? else {
        return Err(Problem::new(Code::Busy, format!("job {id} is running"))
            .kept("the job")
            .remedy(format!("stop it first: anneal stop {id}")));
    };
    let record = serde_json::to_vec(&Record { deleted_ms: now_ms }).unwrap_or_default();
    let (note, to) = (run.path().join(RECORD), home.trash().join(id));
    disk::write_whole(&RealDisk, &note, &record)?;
    relocate(run.path(), &to).inspect_err(|_| {
        let _ = RealDisk.remove_file(&note);
    })?;
    Ok(Trashed { id: id.to_owned(), deleted_ms: Some(now_ms), path: to })
}

/// Brings a run back.
/// Errors: `NotFound` where it is not in the trash, `WrongState` where its id is taken again.
pub fn restore(home: &Home, id: &str) -> Outcome<RunFolder> {
    let from = trashed(home, id)?;
    let to = home.run(id)?;
    relocate(&from, &to)?;
    let _ = RealDisk.remove_file(&to.join(RECORD));
    RunFolder::open(&to)
}

/// What is in the trash, oldest run first.
/// Errors: `FileUnreadable` or `DiskFailed` where the folder cannot be read.
pub fn list(home: &Home) -> Outcome<Vec<Trashed>> {
    Ok(ids_in(&home.trash())?.into_iter().map(|id| look(&home.trash(), id)).collect())
}

/// Frees one deleted run at once.
/// Errors: `NotFound`; `DiskFailed`, where it stays in the trash or what is left of it is freed the next time.
pub fn free_now(home: &Home, id: &str) -> Outcome<()> {
    free(&home.trash(), &trashed(home, id)?)
}

/// Frees every run whose grace period is over, and what an earlier freeing left; returns the ids freed. One deleted in the
/// future (the clock was set back) or at an unknown time stays.
/// Errors: the first that cannot be freed, after the others were.
pub fn free_old(home: &Home, now_ms: i64, grace_ms: i64) -> Outcome<Vec<String>> {
    sweep(&home.trash());
    let (mut freed, mut first) = (Vec::new(), Ok(()));
    for one in list(home)? {
        if one.deleted_ms.is_some_and(|at| now_ms.saturating_sub(at) >= grace_ms) {
            match free(&home.trash(), &one.path) {
                Ok(()) => freed.push(one.id),
                Err(problem) => first = first.and(Err(problem)),
            }
        }
    }
    first.map(|()| freed)
}

/// Out of sight first, so that half a run never comes back.
fn free(trash: &Path, path: &Path) -> Outcome<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = trash.join(format!(".tmp-{name}"));
    let _ = std::fs::remove_dir_all(&hidden);
    let removed = RealDisk.rename(path, &hidden).and_then(|()| std::fs::remove_dir_all(&hidden));
    removed.map_err(|e| Problem::io(&e, "freeing a deleted job", path))
}

fn sweep(trash: &Path) {
    for entry in RealDisk.list(trash).unwrap_or_default() {
        if entry.folder && entry.name.starts_with(".tmp-") {
            let _ = std::fs::remove_dir_all(trash.join(entry.name));
        }
    }
}

fn trashed(home: &Home, id: &str) -> Outcome<PathBuf> {
    check_id(id)?;
    let path = home.trash().join(id);
    match path.is_dir() {
        true => Ok(path),
        false => Err(Problem::new(Code::NotFound, format!("job {id} is not in the trash"))),
    }
}

fn look(trash: &Path, id: String) -> Trashed {
    let path = trash.join(&id);
    let bytes = disk::read_whole(&RealDisk, &path.join(RECORD), RECORD_BYTES).unwrap_or_default();
    let record: Option<Record> = serde_json::from_slice(&bytes).ok();
    Trashed { id, deleted_ms: record.map(|r| r.deleted_ms), path }
}

/// Renames between `runs` and `trash` and makes both ends durable, the new one first.
fn relocate(from: &Path, to: &Path) -> Outcome<()> {
    let parent = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_path_buf();
    let moved = RealDisk
        .rename(from, to)
        .and_then(|()| RealDisk.sync_folder(&parent(to)))
        .and_then(|()| RealDisk.sync_folder(&parent(from)));
    moved.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Problem::new(Code::WrongState, "the place is taken").file(to),
        _ => Problem::io(&error, "moving a run folder", from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{alone, home_with_run};

    const ID: &str = "20261130-150312-k3f9";

    #[test]
    fn a_deleted_job_comes_back_as_it_was() {
        let _alone = alone();
        let (_folder, home) = home_with_run(ID);
        std::fs::write(home.runs().join(ID).join("trainer.log"), "log").unwrap();
        let names = |path: &Path| {
            let mut names: Vec<_> = RealDisk.list(path).unwrap().into_iter().map(|l| l.name).collect();
            names.sort();
            names
        };
        let before = names(&home.runs().join(ID));
        delete(&home, ID, 1000).unwrap();
        assert!(home.run_ids().unwrap().is_empty());
        let expected = Trashed { id: ID.into(), deleted_ms: Some(1000), path: home.trash().join(ID) };
        assert_eq!(list(&home).unwrap(), [expected]);
        let twice = delete(&home, ID, 0).unwrap_err();
        assert!(twice.code == Code::WrongState && twice.what.contains("already in the trash"), "{twice}");
        let run = restore(&home, ID).unwrap();
        let after: Vec<String> = names(run.path()).into_iter().filter(|name| name != "lock").collect();
        assert_eq!(after, before);
        assert_eq!(home.run_ids().unwrap(), [ID]);
        assert_eq!(restore(&home, ID).unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn a_running_job_is_not_deleted() {
        let _alone = alone();
        let (_folder, home) = home_with_run(ID);
        let run = RunFolder::of(&home, ID).unwrap();
        let held = lock::try_lock(&run.lock()).unwrap().unwrap();
        let problem = delete(&home, ID, 0).unwrap_err();
        assert_eq!(problem.code, Code::Busy);
        assert!(problem.remedy.contains(ID), "{problem}");
        assert!(run.is_held().unwrap());
        drop(held);
        assert!(!run.is_held().unwrap());
        delete(&home, ID, 0).unwrap();
    }

    #[test]
    fn only_what_is_old_enough_is_freed() {
        let _alone = alone();
        let (_folder, home) = home_with_run(ID);
        delete(&home, ID, 5000).unwrap();
        std::fs::create_dir_all(home.trash().join(".tmp-half/freed")).unwrap();
        assert!(free_old(&home, 5000 + GRACE_MS - 1, GRACE_MS).unwrap().is_empty());
        assert!(free_old(&home, 4000, GRACE_MS).unwrap().is_empty(), "the clock was set back");
        assert!(!home.trash().join(".tmp-half").exists());
        assert_eq!(free_old(&home, 5000 + GRACE_MS, GRACE_MS).unwrap(), [ID]);
        assert_eq!(RealDisk.list(&home.trash()).unwrap(), []);
    }

    #[test]
    fn one_whose_time_is_unknown_is_freed_only_when_asked_for() {
        let _alone = alone();
        let (_folder, home) = home_with_run(ID);
        let path = delete(&home, ID, 5000).unwrap().path;
        std::fs::write(path.join(RECORD), "?").unwrap();
        assert!(free_old(&home, i64::MAX, 0).unwrap().is_empty());
        free_now(&home, ID).unwrap();
        assert_eq!(RealDisk.list(&home.trash()).unwrap(), []);
        assert_eq!(free_now(&home, ID).unwrap_err().code, Code::NotFound);
        assert_eq!(free_now(&home, "../runs").unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn a_taken_place_is_not_overwritten() {
        let _alone = alone();
        let (_folder, home) = home_with_run(ID);
        delete(&home, ID, 0).unwrap();
        std::fs::create_dir(home.runs().join(ID)).unwrap();
        assert_eq!(restore(&home, ID).unwrap_err().code, Code::WrongState);
        assert_eq!(list(&home).unwrap().len(), 1);
    }
}
