//! Finding, checking and opening checkpoints.

use super::manifest::{self, Manifest, ManifestFile};
use super::{folder_name, step_of};
use crate::disk::Disk;
use protocol::record::CheckpointRow;
use protocol::{Code, Outcome, Problem};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Piece in which a file is read to check it.
const BUFFER_BYTES: usize = 256 * 1024;

/// A checkpoint to restore from; it was verified when this was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// Steps done.
    pub step: u64,
    /// Its folder.
    pub dir: PathBuf,
    /// What it consists of.
    pub manifest: Manifest,
}

impl Restore {
    /// Opens one checkpoint folder, wherever it is (a fork starts from another run's), and checks every checksum.
    /// Errors: `CheckpointDamaged` naming the file.
    pub fn open(disk: &dyn Disk, dir: &Path) -> Outcome<Restore> {
        let manifest = Manifest::read(disk, dir)?;
        if named_step(dir).is_some_and(|step| step != manifest.step) {
            return Err(damaged(dir, format!("its manifest is of step {}", manifest.step)));
        }
        for file in &manifest.files {
            check_size(disk, dir, file)?;
        }
        for file in &manifest.files {
            check_content(disk, dir, file)?;
        }
        Ok(Restore { step: manifest.step, dir: dir.to_path_buf(), manifest })
    }

    /// Path of one of its files.
    /// Errors: `CheckpointDamaged` where the manifest lists no such file.
    pub fn file(&self, name: &str) -> Outcome<PathBuf> {
        match self.manifest.files.iter().any(|file| file.name == name) {
            true => Ok(self.dir.join(name)),
            false => Err(damaged(&self.dir, format!("{name} is missing from its manifest"))),
        }
    }
}

/// All checkpoints of a `checkpoints/` folder, newest first, as far as can be told without reading their content: `verified`
/// is null. A missing folder holds none.
/// Errors: `FileUnreadable`, `DiskFailed` where the folder cannot be read.
pub fn list(disk: &dyn Disk, checkpoints: &Path) -> Outcome<Vec<CheckpointRow>> {
    let steps = steps(disk, checkpoints).map_err(|e| Problem::io(&e, "reading a folder", checkpoints))?;
    Ok(steps.into_iter().map(|step| row(disk, &checkpoints.join(folder_name(step)), step)).collect())
}

/// Compares size and checksum of every file of one checkpoint folder.
/// Errors: `CheckpointDamaged` naming the damaged file.
pub fn verify(disk: &dyn Disk, dir: &Path) -> Outcome<()> {
    Restore::open(disk, dir).map(|_| ())
}

/// The newest checkpoint of run `run` that verifies, and what is wrong with each newer one. `None` with problems means that
/// all are damaged: never start from step 0 silently then.
pub fn newest_good(disk: &dyn Disk, checkpoints: &Path, run: &str) -> (Option<Restore>, Vec<Problem>) {
    let mut problems = Vec::new();
    let steps = steps(disk, checkpoints).unwrap_or_else(|error| {
        problems.push(Problem::io(&error, "looking for checkpoints", checkpoints));
        Vec::new()
    });
    for step in steps {
        match open_of(disk, &checkpoints.join(folder_name(step)), run) {
            Ok(restore) => return (Some(restore), problems),
            Err(problem) => problems.push(problem),
        }
    }
    (None, problems)
}

/// Opens a checkpoint that must be of this run and of the step its folder is named for.
pub(super) fn open_of(disk: &dyn Disk, dir: &Path, run: &str) -> Outcome<Restore> {
    let restore = Restore::open(disk, dir)?;
    belongs(&restore.manifest, dir, run)?;
    Ok(restore)
}

/// Steps with a folder of our naming, newest first.
pub(super) fn steps(disk: &dyn Disk, checkpoints: &Path) -> io::Result<Vec<u64>> {
    let listed = match disk.list(checkpoints) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    };
    let mut steps: Vec<u64> = listed.iter().filter(|l| l.folder).filter_map(|l| step_of(&l.name)).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    Ok(steps)
}

/// The manifest of a checkpoint of this run whose files are all there with their sizes; content is not read.
pub(super) fn complete(disk: &dyn Disk, dir: &Path) -> Outcome<Manifest> {
    let manifest = Manifest::read(disk, dir)?;
    match manifest.files.iter().find_map(|file| check_size(disk, dir, file).err()) {
        None => Ok(manifest),
        Some(problem) => Err(problem),
    }
}

/// The step that a folder is named for.
fn named_step(dir: &Path) -> Option<u64> {
    dir.file_name().and_then(|name| name.to_str()).and_then(step_of)
}

/// Refuses a checkpoint that was copied from another run or renamed to another step.
pub(super) fn belongs(manifest: &Manifest, dir: &Path, run: &str) -> Outcome<()> {
    let named = named_step(dir);
    if manifest.run != run {
        return Err(damaged(dir, format!("it is of run {}, not of {run}", manifest.run)));
    }
    if named != Some(manifest.step) {
        return Err(damaged(dir, format!("its manifest is of step {}", manifest.step)));
    }
    Ok(())
}

fn row(disk: &dyn Disk, dir: &Path, step: u64) -> CheckpointRow {
    let (bytes, problem) = match complete(disk, dir) {
        Ok(manifest) => (manifest.bytes(), None),
        Err(problem) => (present_bytes(disk, dir), Some(problem)),
    };
    let (path, complete) = (dir.display().to_string(), problem.is_none());
    CheckpointRow { step, path, bytes, complete, verified: None, problem }
}

fn present_bytes(disk: &dyn Disk, dir: &Path) -> u64 {
    let listed = disk.list(dir).unwrap_or_default();
    listed.iter().filter(|l| l.name != manifest::FILE).filter_map(|l| disk.size(&dir.join(&l.name)).ok()).sum()
}

fn check_size(disk: &dyn Disk, dir: &Path, file: &ManifestFile) -> Outcome<()> {
    let path = dir.join(&file.name);
    match disk.size(&path) {
        Ok(bytes) if bytes == file.bytes => Ok(()),
        Ok(bytes) => {
            let why = format!("{} has the wrong size: {bytes} bytes instead of {}", file.name, file.bytes);
            Err(damaged(&path, why))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(damaged(&path, format!("{} is missing", file.name)))
        }
        Err(error) => Err(damaged(&path, format!("{}: {error}", file.name))),
    }
}

fn check_content(disk: &dyn Disk, dir: &Path, file: &ManifestFile) -> Outcome<()> {
    let path = dir.join(&file.name);
    match hash(disk, &path, file.bytes) {
        Ok(hash) if format!("{hash:032x}") == file.xxh3_128 => Ok(()),
        Ok(_) => Err(damaged(&path, format!("the checksum of {} is wrong", file.name))),
        Err(error) => Err(damaged(&path, format!("{} cannot be read: {error}", file.name))),
    }
}

fn hash(disk: &dyn Disk, path: &Path, bytes: u64) -> io::Result<u128> {
    let piece_bytes = usize::try_from(bytes).unwrap_or(BUFFER_BYTES).clamp(1, BUFFER_BYTES);
    let (mut file, mut hash, mut piece) = (disk.open(path)?, Box::<Xxh3>::default(), vec![0; piece_bytes]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(hash.digest128()),
            Ok(n) => hash.update(&piece[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn damaged(path: &Path, why: String) -> Problem {
    Problem::new(Code::CheckpointDamaged, "the checkpoint is damaged").why(why).file(path)
}
