//! One window a HOME: the first holds `window.lock` and listens on `window.sock`; every other hands its files over and
//! ends. Neither needs a desktop bus.
//!
//! Not here: what the window does with the files (`window`).

use protocol::problem::{Code, Outcome, Problem};
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOCK: &str = "window.lock";
const SOCKET: &str = "window.sock";
/// Longest wait of a second start for the first to take its files over.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait for one side of a conversation.
const SILENCE: Duration = Duration::from_millis(1500);
/// Most bytes of a message: thousands of paths.
const BYTES: u64 = 1024 * 1024;

/// What a second start says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    protocol: u32,
    paths: Vec<PathBuf>,
}

/// How a start ends.
pub enum Start {
    /// This is the window; keep the lock as long as it is open.
    First(Held),
    /// Another window has taken the files over.
    HandedOver,
}

/// Keeps every other window away.
pub struct Held {
    folder: OwnedFd,
    _lock: File,
}

/// Becomes the window of HOME, or hands `paths` to the one there is.
/// Errors: `Busy` where that one does not answer within 3 s, or what is wrong with HOME.
pub fn start(home: &Path, paths: &[PathBuf]) -> Outcome<Start> {
    engine::engine::make_home(home)?;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(home, flags, Mode::empty()).map_err(|e| Problem::io(&e.into(), "opening", home))?;
    let begun = Instant::now();
    loop {
        // Tried again each time: the window there was may be closing.
        if let Some(lock) = lock(home)? {
            return Ok(Start::First(Held { folder, _lock: lock }));
        }
        match hand_over(&folder, paths) {
            Ok(()) => return Ok(Start::HandedOver),
            Err(_) if begun.elapsed() + SILENCE < PATIENCE => std::thread::sleep(Duration::from_millis(30)),
            Err(error) => return Err(no_answer(home, &error)),
        }
    }
}

impl Held {
    /// Takes files over from later starts, on a thread, as long as the process lives.
    pub fn listen(self, each: impl Fn(Vec<PathBuf>) + Send + 'static) -> std::io::Result<()> {
        let _ = rustix::fs::unlinkat(&self.folder, SOCKET, rustix::fs::AtFlags::empty());
        let listener = UnixListener::bind(socket_in(&self.folder))?;
        rustix::fs::chmodat(&self.folder, SOCKET, Mode::RUSR | Mode::WUSR, rustix::fs::AtFlags::empty())?;
        let listening = move || {
            let _held = self;
            for stream in listener.incoming() {
                // One at a time: a stuck one is cut off before those behind it lose patience.
                match stream.and_then(receive) {
                    Ok(paths) => each(paths),
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        };
        std::thread::Builder::new().name("anneal-window".into()).spawn(listening).map(drop)
    }
}

/// The lock, unless another process has it.
fn lock(home: &Path) -> Outcome<Option<File>> {
    let path = home.join(LOCK);
    let open = File::options().create(true).truncate(false).write(true).open(&path);
    let file = open.map_err(|e| Problem::io(&e, "opening", &path))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(Problem::io(&error.into(), "locking", &path)),
    }
}

/// A socket's path may have 108 bytes and HOME may lie deeper: it is named through the open folder.
fn socket_in(folder: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

fn hand_over(folder: &OwnedFd, paths: &[PathBuf]) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket_in(folder))?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let message = Message { protocol: protocol::limits::PROTOCOL, paths: paths.to_vec() };
    let mut line = serde_json::to_vec(&message)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = [0; 3];
    stream.read_exact(&mut answer)?;
    if answer == *b"ok\n" { Ok(()) } else { Err(std::io::Error::other("another protocol")) }
}

fn receive(mut stream: UnixStream) -> std::io::Result<Vec<PathBuf>> {
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
        return Err(std::io::Error::other("another user"));
    }
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut line = Vec::new();
    BufReader::new((&stream).take(BYTES)).read_until(b'\n', &mut line)?;
    let message: Message = serde_json::from_slice(&line)?;
    let known = message.protocol == protocol::limits::PROTOCOL;
    stream.write_all(if known { b"ok\n" } else { b"no\n" })?;
    Ok(if known { message.paths } else { Vec::new() })
}

fn no_answer(home: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Code::Busy, "another window of this HOME is open and does not answer")
        .why(error.to_string())
        .file(home)
        .kept("all jobs; they do not depend on a window")
        .remedy("close that window, or end its process, and start again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_second_start_hands_its_files_to_the_first_even_in_a_deep_home() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("d".repeat(120)).join("é");
        let (given, got) = mpsc::channel();
        let Start::First(held) = start(&home, &[]).unwrap() else { panic!("not the first") };
        held.listen(move |paths| given.send(paths).unwrap()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&home).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700, "jobs and data are their owner's alone");
        let paths = vec![PathBuf::from("/a b/é"), "/c".into()];
        assert!(matches!(start(&home, &paths).unwrap(), Start::HandedOver));
        assert_eq!(got.recv_timeout(Duration::from_secs(5)).unwrap(), paths);
    }

    #[test]
    fn nonsense_and_silence_do_not_keep_later_starts_waiting() {
        let home = tempfile::tempdir().unwrap();
        let Start::First(held) = start(home.path(), &[]).unwrap() else { panic!("not the first") };
        held.listen(|_| {}).unwrap();
        let mut noisy = UnixStream::connect(home.path().join(SOCKET)).unwrap();
        noisy.write_all(b"GET / HTTP/1.1\n").unwrap();
        assert!(matches!(start(home.path(), &[]).unwrap(), Start::HandedOver));
    }

    #[test]
    fn a_window_that_does_not_answer_is_told_of_within_three_seconds() {
        let home = tempfile::tempdir().unwrap();
        let Start::First(_held) = start(home.path(), &[]).unwrap() else { panic!("not the first") };
        let begun = Instant::now();
        let Err(problem) = start(home.path(), &[]) else { panic!("nobody listens") };
        assert_eq!(problem.code, Code::Busy);
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }
}
