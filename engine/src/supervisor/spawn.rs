//! Starts a trainer process: which file, which descriptors, which environment, and nothing more than that.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The trainer's descriptors: control socket, run lock, then one lock a device. 4 is left for snapshot memory.
const CONTROL: RawFd = 3;
const RUN_LOCK: RawFd = 5;
const DEVICES: RawFd = 6;
/// Sources are moved to here first, so that none lies where another is to be put.
const APART: RawFd = 64;
/// A trainer is the first to go when memory runs out: its state is on disk, the desktop's is not.
const OOM_SCORE: &[u8] = b"500";

/// A trainer yields to what one does in front of it, the window above all: with both cores at work a place of the window
/// would otherwise wait for its turn. Idle cores are its own as before.
const NICE: i32 = 5;
const NICE_TEXT: &[u8] = b"5";

/// Variables a trainer may see: where things are and how to speak, nothing that could be a secret.
const ENVIRONMENT: [&str; 15] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "CONDA_PREFIX",
    "VIRTUAL_ENV",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
];

/// The trainer's binary, held open: a restart runs that very file, whatever an upgrade has put in its place.
pub struct Binary {
    file: OwnedFd,
}

impl Binary {
    /// Opens it.
    pub fn open(path: &Path) -> std::io::Result<Binary> {
        let file = File::open(path)?;
        Ok(Binary { file: fcntl_dupfd_cloexec(&file, APART)? })
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// What a trainer is started with.
pub struct Start<'a> {
    /// What to run.
    pub binary: &'a Binary,
    /// HOME.
    pub home: &'a Path,
    /// The run folder, also its working directory.
    pub run_folder: &'a Path,
    /// The run's lock, inherited.
    pub run_lock: BorrowedFd<'a>,
    /// Device locks, inherited.
    pub device_locks: Vec<BorrowedFd<'a>>,
}

/// A started trainer.
pub struct Started {
    /// The process; its group has the same number.
    pub child: tokio::process::Child,
    /// Our end of the control socket.
    pub link: tokio::net::UnixStream,
    /// Read end of what it prints.
    pub output: OwnedFd,
}

impl Start<'_> {
    /// Starts it. Must be called inside a runtime.
    pub fn run(&self) -> std::io::Result<Started> {
        let (ours, theirs) = UnixStream::pair()?;
        let (output, print) = std::io::pipe()?;
        let places = self.places(theirs.as_fd())?;
        let mut command = tokio::process::Command::new(self.binary.path());
        command
            .arg0("anneal-trainer")
            .args([OsString::from("run"), "--home".into(), self.home.into(), self.run_folder.into()])
            .current_dir(self.run_folder)
            .env_clear()
            .envs(environment(ENVIRONMENT))
            .env("ANNEAL_HOME", self.home)
            .stdin(Stdio::null())
            .stdout(print.try_clone()?)
            .stderr(print);
        let moves: Vec<(RawFd, RawFd)> = places.iter().map(|(source, at)| (source.as_raw_fd(), *at)).collect();
        // SAFETY: between fork and exec the closure makes system calls only: no allocation, no lock.
        unsafe {
            command.pre_exec(move || prepare(&moves));
        }
        let child = command.spawn()?;
        ours.set_nonblocking(true)?;
        Ok(Started { child, link: tokio::net::UnixStream::from_std(ours)?, output: output.into() })
    }

    /// Which descriptor goes where; the sources lie apart from all targets.
    fn places(&self, control: BorrowedFd) -> std::io::Result<Vec<(OwnedFd, RawFd)>> {
        let fixed = [(control, CONTROL), (self.run_lock, RUN_LOCK)];
        let devices = self.device_locks.iter().copied().zip(DEVICES..);
        fixed.into_iter().chain(devices).map(|(fd, at)| Ok((fcntl_dupfd_cloexec(fd, APART)?, at))).collect()
    }
}

/// Occupies the descriptors that trainers will have there, so that nothing of ours (the channel that reports a failed exec
/// above all) lies where `prepare` puts something else. To be held as long as trainers are started.
pub fn keep_places(devices: usize) -> std::io::Result<Vec<File>> {
    let end = DEVICES + devices as RawFd;
    let mut kept = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        if file.as_raw_fd() >= end {
            return Ok(kept);
        }
        kept.push(file);
    }
}

/// Closes every descriptor that a fresh process inherited by accident: whoever waits for the end of such a pipe shall not
/// wait for a job, and no trainer shall have it.
///
/// # Safety
/// Nothing in this process may have opened a descriptor above 2 yet.
pub unsafe fn close_inherited() {
    for number in open_descriptors().into_iter().filter(|number| *number > 2) {
        // SAFETY: open, as just asked, and by the caller's promise nobody's.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

fn open_descriptors() -> Vec<RawFd> {
    let Ok(listed) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers: Vec<RawFd> = listed.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    // The one that the listing itself used is closed by now.
    // SAFETY: a closed descriptor only gives EBADF.
    numbers.into_iter().filter(|n| rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(*n) }).is_ok()).collect()
}

/// Those of our variables that are in the list, and all of Anneal's own.
pub fn environment<const N: usize>(allowed: [&str; N]) -> Vec<(OsString, OsString)> {
    let ours = |name: &OsString| name.to_str().is_some_and(|n| n.starts_with("ANNEAL_") || allowed.contains(&n));
    std::env::vars_os().filter(|(name, _)| ours(name)).collect()
}

/// The list for every `anneal-trainer`.
pub fn trainer_environment() -> Vec<(OsString, OsString)> {
    environment(ENVIRONMENT)
}

/// In the child, before it becomes the trainer.
fn prepare(moves: &[(RawFd, RawFd)]) -> std::io::Result<()> {
    rustix::process::setsid()?;
    // The memory of a trainer is large and says nothing that its log does not.
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    write_own(c"/proc/self/oom_score_adj", OOM_SCORE);
    // A session is a group of its own where the kernel groups by session, else the process counts.
    write_own(c"/proc/self/autogroup", NICE_TEXT);
    let _ = rustix::process::nice(NICE);
    for (source, at) in moves {
        // SAFETY: `source` was open at the fork and is only borrowed; `at` is nobody's (`keep_places`) and stays open for
        // the trainer, so its owner here gives it up at once.
        unsafe {
            let mut target = OwnedFd::from_raw_fd(*at);
            let done = rustix::io::dup2(BorrowedFd::borrow_raw(*source), &mut target);
            let _ = target.into_raw_fd();
            done?;
        }
    }
    Ok(())
}

/// Not being allowed to is no reason not to train.
fn write_own(path: &std::ffi::CStr, text: &[u8]) {
    use rustix::fs::{Mode, OFlags, open};
    if let Ok(file) = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(&file, text);
    }
}
