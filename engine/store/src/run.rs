//! A run's one folder, `HOME/runs/ID/`: the truth about a job. It appears complete or not at all.
//!
//! Not here: what is written while the job lives (`journal`, `checkpoint`), who may write it (`lock`), and its end (`trash`).

use crate::disk::{self, Disk, RealDisk};
use crate::home::{Home, check_id};
use crate::lock;
use protocol::record::Labels;
use protocol::{Code, JobSpec, Outcome, Plan, Problem, limits};
use std::io;
use std::path::{Path, PathBuf};

/// Longest plan.json, in bytes: the memory table of a model with a thousand layers fits.
const PLAN_BYTES: u64 = 64 * 1024 * 1024;
/// Longest labels.toml, in bytes.
const LABELS_BYTES: u64 = 1024 * 1024;

/// What a lost or damaged file beside them does not touch.
const KEPT: &str = "its checkpoints and its journal";

/// The folder of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
    id: String,
}

impl RunFolder {
    /// Makes the folder of a new run with its spec, its plan and what the user says of it; when this returns, it is durable.
    /// Errors: `WrongState` where the id is taken, `DiskFull`, `DiskFailed`; then nothing is left.
    pub fn create(home: &Home, id: &str, spec: &JobSpec, plan: &Plan, labels: &Labels) -> Outcome<RunFolder> {
        let path = home.run(id)?;
        let files =
            [("job.toml", spec.to_toml().into_bytes()), ("plan.json", json(plan)?), ("labels.toml", toml_of(labels)?)];
        let temp = home.runs().join(format!(".tmp-{id}"));
        let needed = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        appear(&RealDisk, &temp, &path, &files).map_err(|error| {
            let _ = disk::remove_tree(&RealDisk, &temp);
            match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    Problem::new(Code::WrongState, format!("there already is a job {id}")).file(&path)
                }
                _ => disk::failed(&RealDisk, &error, "making the run folder", &path, needed),
            }
        })?;
        Ok(RunFolder { path, id: id.to_owned() })
    }

    /// Opens the folder of a run.
    /// Errors: `NotFound` where it is not a run folder.
    pub fn open(path: &Path) -> Outcome<RunFolder> {
        let missing = || {
            Problem::new(Code::NotFound, "this is not a run folder")
                .why("it has no job.toml")
                .file(path)
                .remedy("see `anneal jobs`")
        };
        let path = std::fs::canonicalize(path).map_err(|_| missing())?;
        let id = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if check_id(&id).is_err() || RealDisk.size(&path.join("job.toml")).is_err() {
            return Err(missing());
        }
        Ok(RunFolder { path, id })
    }

    /// Opens the folder of a run by its id.
    /// Errors: `NotFound` where there is no such run, `FileUnreadable` where its job.toml is missing.
    pub fn of(home: &Home, id: &str) -> Outcome<RunFolder> {
        let path = home.run(id)?;
        RunFolder::open(&path).map_err(|_| {
            if path.is_dir() {
                return Problem::new(Code::FileUnreadable, format!("the job file of job {id} is missing"))
                    .file(&path.join("job.toml"))
                    .kept(KEPT)
                    .remedy("put it back: the job file that the job was started with will do");
            }
            Problem::new(Code::NotFound, format!("there is no job \"{id}\"")).remedy("see `anneal jobs`")
        })
    }

    /// The folder, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's id, which is the folder's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The spec as asked.
    pub fn job_file(&self) -> PathBuf {
        self.path.join("job.toml")
    }

    /// The complete plan.
    pub fn plan_file(&self) -> PathBuf {
        self.path.join("plan.json")
    }

    /// Every event, one a line.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    /// What the trainer printed.
    pub fn trainer_log(&self) -> PathBuf {
        self.path.join("trainer.log")
    }

    /// Where the supervisor listens.
    pub fn socket(&self) -> PathBuf {
        self.path.join("supervisor.sock")
    }

    /// Held while a supervisor or trainer of this run lives.
    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Name, notes, tags, star and pins.
    pub fn labels_file(&self) -> PathBuf {
        self.path.join("labels.toml")
    }

    /// Checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Exported models.
    pub fn export(&self) -> PathBuf {
        self.path.join("export")
    }

    /// True while a supervisor or trainer of this run lives.
    /// Errors: `DiskFailed` where the lock cannot be looked at.
    pub fn is_held(&self) -> Outcome<bool> {
        lock::is_held(&self.lock())
    }

    /// Reads the spec.
    /// Errors: `FileUnreadable`, or as `JobSpec::parse`.
    pub fn spec(&self) -> Outcome<JobSpec> {
        let path = self.job_file();
        let remedy = "correct it, or put it back: the job file that the job was started with will do";
        let text = text(&path, limits::JOB_BYTES).map_err(|problem| problem.kept(KEPT).remedy(remedy))?;
        JobSpec::parse(&text, &[], &self.path).map_err(|problem| problem.file(&path).kept(KEPT).remedy(remedy))
    }

    /// Reads the plan.
    /// Errors: `FileUnreadable`, `FileMalformed`.
    pub fn plan(&self) -> Outcome<Plan> {
        let path = self.plan_file();
        let remedy = || {
            let job = self.job_file();
            format!("put plan.json back from a backup, or start the job anew: anneal train {}", job.display())
        };
        let bytes = disk::read_whole(&RealDisk, &path, PLAN_BYTES).map_err(|problem| {
            let what = format!("the plan of job {} cannot be read", self.id);
            Problem { what, ..problem }.kept(KEPT).remedy(remedy())
        })?;
        serde_json::from_slice(&bytes).map_err(|e| {
            let what = format!("the plan of job {} is damaged", self.id);
            malformed(&path, &what, e.to_string()).line(e.line() as u64).kept(KEPT).remedy(remedy())
        })
    }

    /// Reads what the user said of the job; nothing yet means the defaults.
    /// Errors: `FileUnreadable`, `FileMalformed`.
    pub fn labels(&self) -> Outcome<Labels> {
        let path = self.labels_file();
        if std::fs::symlink_metadata(&path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            return Ok(Labels::default());
        }
        let text = text(&path, LABELS_BYTES)?;
        toml::from_str(&text).map_err(|e| {
            malformed(&path, "the labels of this job cannot be read", e.message().to_owned())
                .remedy("correct or remove it")
        })
    }

    /// Changes what the user says of the job, in one step: two windows that label at once both get their change in.
    /// Errors: as `labels`; `Busy`, `DiskFull`, `DiskFailed`, where the old labels stay.
    pub fn change_labels(&self, change: impl FnOnce(&mut Labels)) -> Outcome<Labels> {
        let _held = lock::of_folder(&self.path)?;
        let mut labels = self.labels()?;
        change(&mut labels);
        disk::write_whole(&RealDisk, &self.labels_file(), &toml_of(&labels)?)?;
        Ok(labels)
    }
}

fn appear(disk: &dyn Disk, temp: &Path, path: &Path, files: &[(&str, Vec<u8>)]) -> io::Result<()> {
    disk::remove_tree(disk, temp)?;
    disk.create_folder(temp)?;
    for (name, bytes) in files {
        disk::write_new(disk, &temp.join(name), bytes)?;
    }
    for name in ["checkpoints", "export"] {
        disk.create_folder(&temp.join(name))?;
        disk.sync_folder(&temp.join(name))?;
    }
    disk.sync_folder(temp)?;
    disk.rename(temp, path)?;
    disk.sync_folder(path.parent().unwrap_or(path))
}

fn json<T: serde::Serialize>(value: &T) -> Outcome<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| Problem::internal(format!("the plan: {e}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn toml_of(labels: &Labels) -> Outcome<Vec<u8>> {
    let text = toml::to_string_pretty(labels)
        .map_err(|e| Problem::new(Code::SettingInvalid, "these labels cannot be kept").why(e.to_string()))?;
    if text.len() as u64 > LABELS_BYTES {
        return Err(Problem::new(Code::TooLarge, format!("labels may have {LABELS_BYTES} bytes, not {}", text.len())));
    }
    Ok(text.into_bytes())
}

fn text(path: &Path, limit: u64) -> Outcome<String> {
    String::from_utf8(disk::read_whole(&RealDisk, path, limit)?)
        .map_err(|e| malformed(path, "this file is not UTF-8", e.to_string()))
}

fn malformed(path: &Path, what: &str, why: String) -> Problem {
    Problem::new(Code::FileMalformed, what).why(why).file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimulatedDisk;
    use crate::testing::{Numbers, home_with_run, plan, spec};
    use std::os::unix::fs::PermissionsExt;

    const ID: &str = "20261130-150312-k3f9";

    #[test]
    fn a_new_run_holds_its_spec_plan_and_labels_for_the_user_alone() {
        let (_folder, home) = home_with_run(ID);
        let run = RunFolder::of(&home, ID).unwrap();
        assert_eq!((run.id(), run.spec().unwrap(), run.plan().unwrap()), (ID, spec(), plan()));
        assert_eq!(run.labels().unwrap(), Labels::default());
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert!([run.job_file(), run.plan_file(), run.labels_file()].map(mode).iter().all(|&m| m == 0o600));
        assert!([run.path().into(), run.checkpoints(), run.export()].map(mode).iter().all(|&m| m == 0o700));
        assert_eq!(home.run_ids().unwrap(), [ID]);
        assert_eq!(RealDisk.list(&home.runs()).unwrap().len(), 1, "nothing temporary is left");
    }

    #[test]
    fn an_id_is_given_once() {
        let (_folder, home) = home_with_run(ID);
        let problem = RunFolder::create(&home, ID, &spec(), &plan(), &Labels::default()).unwrap_err();
        assert_eq!(problem.code, Code::WrongState);
        assert_eq!(RealDisk.list(&home.runs()).unwrap().len(), 1);
    }

    #[test]
    fn a_missing_or_damaged_job_or_plan_file_is_named_with_the_remedy() {
        let (_folder, home) = home_with_run(ID);
        let run = RunFolder::of(&home, ID).unwrap();
        std::fs::write(run.plan_file(), "{").unwrap();
        let damaged = run.plan().unwrap_err();
        std::fs::remove_file(run.plan_file()).unwrap();
        let missing = run.plan().unwrap_err();
        std::fs::write(run.job_file(), "stage = 3\n").unwrap();
        let wrong = run.spec().unwrap_err();
        std::fs::remove_file(run.job_file()).unwrap();
        let gone = RunFolder::of(&home, ID).unwrap_err();
        let cases = [
            (damaged, Code::FileMalformed, "plan.json"),
            (missing, Code::FileUnreadable, "plan.json"),
            (wrong, Code::JobInvalid, "job.toml"),
            (gone, Code::FileUnreadable, "job.toml"),
        ];
        for (problem, code, name) in cases {
            assert_eq!(problem.code, code, "{problem}");
            assert!(problem.place.file.as_ref().is_some_and(|file| file.ends_with(name)), "{problem}");
            assert!(problem.kept.contains("checkpoints") && !problem.remedy.is_empty(), "{problem}");
        }
    }

    #[test]
    fn what_is_no_run_is_not_found() {
        let (folder, home) = home_with_run(ID);
        for id in ["20261130-150312-0000", "../runs", ""] {
            assert_eq!(RunFolder::of(&home, id).unwrap_err().code, Code::NotFound, "{id:?}");
        }
        assert_eq!(RunFolder::open(folder.path()).unwrap_err().code, Code::NotFound);
        assert!(RunFolder::open(&home.runs().join(ID).join("../").join(ID)).is_ok());
    }

    #[test]
    fn a_run_appears_complete_or_not_at_all_when_the_power_fails() {
        let (disk, mut numbers) = (SimulatedDisk::default(), Numbers(1));
        disk.create_folder(Path::new("/runs")).unwrap();
        disk.settle();
        let files = [("job.toml", vec![1; 700]), ("plan.json", vec![2; 3000])];
        let (temp, path) = (Path::new("/runs/.tmp-a"), Path::new("/runs/a"));
        appear(&disk, temp, path, &files).unwrap();
        for instant in 0..=disk.instants() {
            for _ in 0..40 {
                let cut = disk.after_power_cut(instant, &mut || numbers.coin());
                let there = cut.list(path).is_ok();
                assert!(there || instant < disk.instants(), "it was said to be there");
                for (name, bytes) in files.iter().filter(|_| there) {
                    assert_eq!(&disk::read_whole(&cut, &path.join(name), 9999).unwrap(), bytes, "at {instant}");
                }
            }
        }
    }

    #[test]
    fn two_who_label_at_once_both_get_their_word_in() {
        let (_folder, home) = home_with_run(ID);
        let run = RunFolder::of(&home, ID).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let run = &run;
                scope.spawn(move || {
                    for i in 0..5 {
                        run.change_labels(|labels| labels.pins.push(thread * 10 + i)).unwrap();
                    }
                });
            }
        });
        let mut pins = run.labels().unwrap().pins;
        pins.sort_unstable();
        assert_eq!(pins, [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 30, 31, 32, 33, 34]);
        let labels = run.change_labels(|l| (l.name, l.note) = (Some("ü \"x\"".into()), "a\nb".into())).unwrap();
        assert_eq!(run.labels().unwrap(), labels);
    }

    #[test]
    fn damaged_files_are_named() {
        let (_folder, home) = home_with_run(ID);
        let run = RunFolder::of(&home, ID).unwrap();
        std::fs::write(run.labels_file(), "star = 7").unwrap();
        std::fs::write(run.plan_file(), "{").unwrap();
        let problems = [run.labels().unwrap_err(), run.plan().unwrap_err()];
        assert!(problems.iter().all(|p| p.code == Code::FileMalformed && p.place.file.is_some()), "{problems:?}");
        assert!(run.change_labels(|labels| labels.star = true).is_err());
        assert_eq!(std::fs::read_to_string(run.labels_file()).unwrap(), "star = 7", "what cannot be read is kept");
        std::fs::remove_file(run.labels_file()).unwrap();
        assert_eq!(run.labels().unwrap(), Labels::default());
        std::fs::write(run.job_file(), "x".repeat(2 << 20)).unwrap();
        assert_eq!(run.spec().unwrap_err().code, Code::TooLarge);
    }
}
