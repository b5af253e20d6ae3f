//! Saving: a temporary folder, file by file, then the final name.
//!
//! The order is what a power cut respects: content of each file, the folder's entries, the rename, the parent's entries;
//! each is durable before the next begins.

use super::manifest::{self, Manifest, ManifestFile};
use super::{TEMP, folder_name, restore};
use crate::disk::{self, Disk, Output};
use protocol::{Outcome, Problem};
use rustix::io::Errno;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Piece in which a file is written: enough to make a call's cost vanish, small beside any tensor.
const BUFFER_BYTES: usize = 64 * 1024;
/// Names tried for the temporary folder: a leftover that cannot be removed costs one.
const NAMES: u32 = 100;
/// What was kept, in every problem of a save.
const KEPT: &str = "all older checkpoints are untouched";

/// Why the content of a file could not be given: `?` makes it from either.
#[derive(Debug, thiserror::Error)]
pub enum WriteFailure {
    /// The write itself.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What was to be written.
    #[error(transparent)]
    Problem(#[from] Problem),
}

/// A checkpoint being written; dropped before [`Writer::commit`], it leaves nothing.
pub struct Writer<'d> {
    disk: &'d dyn Disk,
    checkpoints: PathBuf,
    temp: PathBuf,
    manifest: Manifest,
    expected: u64,
    /// Set by the first failure: what was written may be lost, so nothing after it can make this checkpoint good.
    broken: bool,
}

impl<'d> Writer<'d> {
    /// Begins the checkpoint of a step below `checkpoints`, and removes what dead writers left there. The caller holds the
    /// run's lock.
    /// Errors: `DiskFull`, `DiskFailed`; older checkpoints are untouched.
    pub fn begin(disk: &'d dyn Disk, checkpoints: &Path, step: u64, run: &str) -> Outcome<Writer<'d>> {
        sweep(disk, checkpoints);
        let temp = make_temp(disk, checkpoints, step).map_err(|error| {
            let path = checkpoints.join(folder_name(step));
            disk::failed(disk, &error, "beginning a checkpoint", &path, 0).kept(KEPT)
        })?;
        let (checkpoints, manifest) = (checkpoints.to_path_buf(), Manifest::new(run, step));
        Ok(Writer { disk, checkpoints, temp, manifest, expected: 0, broken: false })
    }

    /// Says how many bytes will come, so that a disk that is too full is found before anything is written.
    /// Errors: `DiskFull` with the needed and the free bytes; nothing is left.
    pub fn expecting(mut self, bytes: u64) -> Outcome<Writer<'d>> {
        self.expected = bytes;
        match self.disk.free(&self.checkpoints) {
            Ok(free) if free < bytes => Err(self.fail(&Errno::NOSPC.into(), &self.target())),
            // A disk that does not tell its room may still have it; a failing one shows at the first write.
            _ => Ok(self),
        }
    }

    /// Streams one file; `fill` writes its content to the `Write` it is given. The file is fsynced when this returns.
    /// Errors: `DiskFull`, `DiskFailed` with path, needed and free bytes, or `fill`'s own problem. After an error the whole
    /// checkpoint is given up.
    pub fn file(&mut self, name: &str, fill: impl FnOnce(&mut dyn Write) -> Result<(), WriteFailure>) -> Outcome<()> {
        self.check_name(name)?;
        let path = self.temp.join(name);
        match stream(self.disk, &path, fill) {
            Ok((bytes, hash)) => {
                let (name, xxh3_128) = (name.to_owned(), format!("{hash:032x}"));
                self.manifest.files.push(ManifestFile { name, bytes, xxh3_128 });
                Ok(())
            }
            Err(WriteFailure::Io(error)) => Err(self.fail(&error, &self.target().join(name))),
            Err(WriteFailure::Problem(problem)) => {
                self.broken = true;
                Err(problem)
            }
        }
    }

    /// Writes the manifest, makes everything durable and gives it the final name: only when this returns does the
    /// checkpoint exist. One of the same step that verifies is kept instead; a damaged one is replaced.
    /// Errors: `DiskFull`, `DiskFailed`; the new one is gone, older checkpoints are untouched.
    pub fn commit(mut self) -> Outcome<Manifest> {
        if self.broken {
            return Err(Problem::internal("a checkpoint was committed after a file of it failed").kept(KEPT));
        }
        let sealed = self.manifest.sealed()?;
        let complete = disk::write_new(self.disk, &self.temp.join(manifest::FILE), &sealed)
            .and_then(|()| self.disk.sync_folder(&self.temp));
        complete.map_err(|error| self.fail(&error, &self.target()))?;
        match restore::open_of(self.disk, &self.target(), &self.manifest.run) {
            Ok(existing) => self.keep(existing.manifest),
            Err(_) => self.appear(),
        }
    }

    /// An earlier save of this step is whole: moving it away would leave an instant without either. Its name may have
    /// been left not durable by a save that failed last, so that is made up for.
    fn keep(mut self, existing: Manifest) -> Outcome<Manifest> {
        let synced = self.disk.sync_folder(&self.target()).and_then(|()| self.disk.sync_folder(&self.checkpoints));
        synced.map_err(|error| self.fail(&error, &self.target()))?;
        Ok(existing)
    }

    fn appear(mut self) -> Outcome<Manifest> {
        let target = self.target();
        let aside = self.free_name(&target).map_err(|error| self.fail(&error, &target))?;
        if let Err(error) = self.take_name(&target) {
            if let Some(aside) = aside {
                let _ = self.disk.rename(&aside, &target);
            }
            return Err(self.fail(&error, &target));
        }
        if let Some(aside) = aside {
            let _ = disk::remove_tree(self.disk, &aside);
        }
        Ok(self.manifest.clone())
    }

    fn take_name(&self, target: &Path) -> io::Result<()> {
        self.disk.rename(&self.temp, target)?;
        self.disk.sync_folder(&self.checkpoints).inspect_err(|_| {
            // Not known to be durable, so it must not be seen under its name.
            let _ = self.disk.rename(target, &self.temp);
        })
    }

    /// Moves a damaged checkpoint of this step out of the way; tells where it went.
    fn free_name(&self, target: &Path) -> io::Result<Option<PathBuf>> {
        let aside = self.checkpoints.join(format!("{TEMP}damaged-{}", folder_name(self.manifest.step)));
        match self.disk.rename(target, &aside) {
            Ok(()) => Ok(Some(aside)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn check_name(&self, name: &str) -> Outcome<()> {
        let twice = self.manifest.files.iter().any(|file| file.name == name);
        match manifest::is_plain(name) && !twice && !self.broken {
            true => Ok(()),
            false => Err(Problem::internal(format!("\"{name}\" cannot be added to this checkpoint")).kept(KEPT)),
        }
    }

    fn target(&self) -> PathBuf {
        self.checkpoints.join(folder_name(self.manifest.step))
    }

    /// Gives the checkpoint up and says why.
    fn fail(&mut self, error: &io::Error, path: &Path) -> Problem {
        self.broken = true;
        let needed = self.expected.max(self.manifest.bytes());
        // Told before the temporary files are removed: that is the room there was.
        let problem = disk::failed(self.disk, error, "saving a checkpoint", path, needed).kept(KEPT);
        let _ = disk::remove_tree(self.disk, &self.temp);
        problem
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // Also after a commit that kept another one; after one that appeared there is nothing of this name.
        let _ = disk::remove_tree(self.disk, &self.temp);
    }
}

/// Removes what dead writers and interrupted removals left. What cannot be removed is not in the way: names differ.
fn sweep(disk: &dyn Disk, checkpoints: &Path) {
    for entry in disk.list(checkpoints).unwrap_or_default() {
        if entry.folder && entry.name.starts_with(TEMP) {
            let _ = disk::remove_tree(disk, &checkpoints.join(entry.name));
        }
    }
}

fn make_temp(disk: &dyn Disk, checkpoints: &Path, step: u64) -> io::Result<PathBuf> {
    let mut result = Err(io::ErrorKind::AlreadyExists.into());
    for n in 0..NAMES {
        let temp = checkpoints.join(format!("{TEMP}{}-{n}", folder_name(step)));
        result = disk.create_folder(&temp).map(|()| temp);
        if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
            break;
        }
    }
    result
}

/// Writes and fsyncs one file; its size and checksum.
fn stream(
    disk: &dyn Disk,
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), WriteFailure>,
) -> Result<(u64, u128), WriteFailure> {
    let meter = Meter { file: disk.create(path)?, bytes: 0, hash: Box::default(), failure: None };
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, meter);
    let filled = fill(&mut out).and_then(|()| Ok(out.flush()?));
    // Taken apart, so that what could not be written is not tried again on the way out.
    let (mut meter, _) = out.into_parts();
    if let Some(error) = meter.failure.take() {
        return Err(error.into());
    }
    filled?;
    meter.file.sync()?;
    Ok((meter.bytes, meter.hash.digest128()))
}

/// Counts and hashes what reaches the file, and remembers a failure: the disk's own words count more than what `fill` makes
/// of them.
struct Meter {
    file: Box<dyn Output>,
    bytes: u64,
    hash: Box<Xxh3>,
    failure: Option<io::Error>,
}

impl Write for Meter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.file.write(bytes) {
            Ok(n) => {
                self.hash.update(&bytes[..n]);
                self.bytes += n as u64;
                Ok(n)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let errno = error.raw_os_error();
                self.failure = Some(errno.map_or_else(|| error.kind().into(), io::Error::from_raw_os_error));
                Err(error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
