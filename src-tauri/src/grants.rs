//! Paths that the user gave: dropped, chosen in a dialog, or named at the start. The page may name these, what lies in them,
//! and what lies in HOME. Of a path that was only typed and recognised it may name that and its files, but nothing deeper:
//! a stray data file in the root of a disk does not open the disk. Nothing else.
//!
//! Not here: what a path holds (`engine::intake`).

use protocol::JobSpec;
use protocol::job::EvaluationData;
use protocol::problem::{Code, Outcome, Problem};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Paths remembered: more than anyone drops in one sitting.
const PATHS: usize = 10_000;

#[derive(Default)]
struct Paths {
    given: BTreeSet<PathBuf>,
    recognised: BTreeSet<PathBuf>,
}

/// The paths given so far, without links and dots.
#[derive(Default)]
pub struct Grants(Mutex<Paths>);

impl Grants {
    /// Takes a path that the user gave; one that is not there grants nothing.
    pub fn allow(&self, path: &Path) {
        remember(&mut self.paths().given, path);
    }

    /// Takes a path that holds a model or data, whoever named it.
    pub fn recognise(&self, path: &Path) {
        remember(&mut self.paths().recognised, path);
    }

    /// Errors: `FileUnreadable` where there is no such path, `PathOutside` where it was not given.
    pub fn check(&self, path: &Path) -> Outcome<()> {
        let real = path.canonicalize().map_err(|e| Problem::io(&e, "finding", path))?;
        let all = self.paths();
        let file_of = |folder: &Path| all.recognised.contains(folder) && !real.is_dir();
        let recognised = all.recognised.contains(&real) || real.parent().is_some_and(file_of);
        if recognised || real.ancestors().any(|above| all.given.contains(above)) {
            return Ok(());
        }
        Err(Problem::new(Code::PathOutside, "this path was not given to Anneal")
            .why("only what was dropped on the window or chosen in it is opened")
            .file(path)
            .remedy("drop it on the window"))
    }

    /// Checks every path of a job. Errors: as `check`.
    pub fn check_job(&self, spec: &JobSpec) -> Outcome<()> {
        paths(spec).into_iter().try_for_each(|path| self.check(path))
    }

    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember(all: &mut BTreeSet<PathBuf>, path: &Path) {
    let Ok(real) = path.canonicalize() else { return };
    if all.len() < PATHS {
        all.insert(real);
    }
}

/// Every path that a job names.
pub fn paths(spec: &JobSpec) -> Vec<&Path> {
    let evaluation: &[PathBuf] = match &spec.data.evaluation {
        EvaluationData::Fraction(_) => &[],
        EvaluationData::Path(path) => std::slice::from_ref(path),
        EvaluationData::Paths(paths) => paths,
    };
    let model = spec.model.path.iter().chain(&spec.model.tokenizer);
    model.chain(&spec.data.train).chain(evaluation).map(PathBuf::as_path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_and_what_lies_in_it_may_be_named() {
        let home = tempfile::tempdir().unwrap();
        let (given, other) = (home.path().join("given é"), home.path().join("other"));
        std::fs::create_dir_all(given.join("deep")).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        std::os::unix::fs::symlink(&other, given.join("link")).unwrap();
        let grants = Grants::default();
        grants.allow(&given);
        grants.allow(Path::new("/nowhere/at/all"));
        assert!(grants.check(&given.join("deep")).is_ok());
        for outside in [other, given.join("link"), given.join("../other"), "/".into(), "/etc/passwd".into()] {
            assert_eq!(grants.check(&outside).unwrap_err().code, Code::PathOutside, "{}", outside.display());
        }
        assert_eq!(grants.check(Path::new("/nowhere")).unwrap_err().code, Code::FileUnreadable);
    }

    #[test]
    fn a_folder_that_was_only_recognised_opens_its_files_and_nothing_deeper() {
        let folder = tempfile::tempdir().unwrap();
        let (file, deep) = (folder.path().join("rows.jsonl"), folder.path().join("deep"));
        std::fs::create_dir(&deep).unwrap();
        std::fs::write(&file, "").unwrap();
        std::fs::write(deep.join("secret"), "").unwrap();
        let grants = Grants::default();
        grants.recognise(folder.path());
        assert!(grants.check(folder.path()).is_ok() && grants.check(&file).is_ok());
        for outside in [deep.clone(), deep.join("secret")] {
            assert_eq!(grants.check(&outside).unwrap_err().code, Code::PathOutside, "{}", outside.display());
        }
    }

    #[test]
    fn every_path_of_a_job_is_looked_at() {
        let text = "stage = \"sft\"\n[model]\npreset = \"nano\"\ntokenizer = \"t\"\n[data]\ntrain = [\"a\", \"b\"]\nevaluation = [\"c\"]\n";
        let spec = JobSpec::parse(text, &[], Path::new("/base")).unwrap();
        let names = ["/base/t", "/base/a", "/base/b", "/base/c"].map(Path::new);
        assert_eq!(paths(&spec), names);
        assert!(Grants::default().check_job(&spec).is_err());
    }
}
