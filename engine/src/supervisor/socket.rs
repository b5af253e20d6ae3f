//! `supervisor.sock`: how engines talk to a supervisor, both ends of it. JSON lines, the first of each side a `Hello`.
//!
//! A socket's path may have 108 bytes and run folders may lie deeper, so both ends name it through an open folder:
//! `/proc/self/fd/N/supervisor.sock`. Not here: what a request does (`core`).

use super::lines::{Lines, line_of};
use protocol::link::{Answer, Hello, Request};
use protocol::{Code, Outcome, Problem, limits};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Name of the socket in the run folder.
const NAME: &str = "supervisor.sock";
/// Longest wait of an engine for an answer.
const WAIT: Duration = Duration::from_secs(2);
/// Engines connected at once: a window, its command lines, and some.
const CONNECTIONS: usize = 16;
/// An engine asks at once; one that is silent this long is cut off.
const SILENCE: Duration = Duration::from_secs(10);

/// Asks the supervisor of a run; its answer comes within 2 s.
/// Errors: `SupervisorLost` when nobody listens or answers in time.
pub fn request(run_folder: &Path, request: Request) -> Outcome<Answer> {
    let until = Instant::now() + WAIT;
    let folder = open_folder(run_folder)?;
    let mut stream = UnixStream::connect(path_in(&folder)).map_err(|e| lost(run_folder, &e))?;
    let mut ask = || {
        stream.set_write_timeout(Some(WAIT))?;
        stream.write_all(&[line_of(&Hello { protocol: limits::PROTOCOL }), line_of(&request)].concat())?;
        let mut incoming = BufReader::new(&stream);
        read_line(&stream, &mut incoming, until)?;
        read_line(&stream, &mut incoming, until)
    };
    let line = ask().map_err(|e| lost(run_folder, &e))?;
    serde_json::from_slice(&line).map_err(|e| {
        Problem::new(Code::ProtocolMismatch, "the supervisor's answer is not understood")
            .why(e.to_string())
            .remedy("use the same release that started the job")
    })
}

/// A request with the place for its answer.
pub struct Asked {
    /// What.
    pub request: Request,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Answer>,
}

/// The listening end; gone when dropped.
pub struct Listening {
    folder: OwnedFd,
    accepting: tokio::task::JoinHandle<()>,
    places: Arc<Semaphore>,
}

impl Listening {
    /// Listens in a run folder whose lock the caller holds, so that a socket found there is a dead one's. Requests come
    /// through the receiver. Must be called inside a runtime.
    pub fn start(run_folder: &Path) -> Outcome<(Listening, mpsc::Receiver<Asked>)> {
        let folder = open_folder(run_folder)?;
        let failed = |e: std::io::Error| Problem::io(&e, "listening for requests", &run_folder.join(NAME));
        let _ = rustix::fs::unlinkat(&folder, NAME, AtFlags::empty());
        let listener = tokio::net::UnixListener::bind(path_in(&folder)).map_err(failed)?;
        rustix::fs::chmodat(&folder, NAME, Mode::RUSR | Mode::WUSR, AtFlags::empty()).map_err(|e| failed(e.into()))?;
        // Every connection has at most one request on its way.
        let (asked, requests) = mpsc::channel(CONNECTIONS);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let accepting = tokio::spawn(accept(listener, asked, Arc::clone(&places)));
        Ok((Listening { folder, accepting, places }, requests))
    }

    /// Stops listening, once those connected have their answers or a moment has passed.
    pub async fn end(self) {
        self.accepting.abort();
        let _ = rustix::fs::unlinkat(&self.folder, NAME, AtFlags::empty());
        let _ = tokio::time::timeout(Duration::from_millis(300), self.places.acquire_many(CONNECTIONS as u32)).await;
    }
}

async fn accept(listener: tokio::net::UnixListener, asked: mpsc::Sender<Asked>, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) if is_ours(&stream) => {
                let asked = asked.clone();
                tokio::spawn(async move {
                    // Whatever goes wrong here is the engine's loss alone: it sees the connection end.
                    let _ = serve(stream, asked).await;
                    drop(place);
                });
            }
            Ok(_) => {}
            // Out of descriptors, mostly: a pause lets some be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Only the job's own user may ask; root may anyway.
fn is_ours(stream: &tokio::net::UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
}

async fn serve(stream: tokio::net::UnixStream, asked: mpsc::Sender<Asked>) -> std::io::Result<()> {
    let (incoming, mut outgoing) = stream.into_split();
    let mut lines = Lines::new(incoming, "engine");
    outgoing.write_all(&line_of(&Hello { protocol: limits::PROTOCOL })).await?;
    loop {
        let answer = match tokio::time::timeout(SILENCE, lines.next()).await {
            Ok(Ok(Some(request))) => {
                let (answer, answered) = oneshot::channel();
                let sent = asked.send(Asked { request, answer }).await;
                let (Ok(()), Ok(answer)) = (sent, answered.await) else { return Ok(()) };
                answer
            }
            Ok(Err(problem)) => {
                return outgoing.write_all(&line_of(&Answer::Refused { problem })).await;
            }
            Ok(Ok(None)) | Err(_) => return Ok(()),
        };
        outgoing.write_all(&line_of(&answer)).await?;
    }
}

fn open_folder(run_folder: &Path) -> Outcome<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(run_folder, flags, Mode::empty())
        .map_err(|e| Problem::io(&e.into(), "opening the run folder", run_folder))
}

fn path_in(folder: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()))
}

/// One line of at most `limits::MESSAGE_BYTES`, by then.
fn read_line(stream: &UnixStream, incoming: &mut impl BufRead, until: Instant) -> std::io::Result<Vec<u8>> {
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(left))?;
    let mut line = Vec::new();
    incoming.take(limits::MESSAGE_BYTES as u64).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

fn lost(run_folder: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Code::SupervisorLost, "the job's supervisor does not answer")
        .why(error.to_string())
        .file(&run_folder.join(NAME))
        .remedy("resume the job")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A supervisor on a thread of its own that grants everything but a pause, until it is asked to stop twice.
    fn listen(folder: &Path) -> std::thread::JoinHandle<()> {
        let (folder, (told, ready)) = (folder.to_owned(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (listening, mut requests) = Listening::start(&folder).unwrap();
                told.send(()).unwrap();
                let mut stops = 0;
                while stops < 2 {
                    let asked = requests.recv().await.unwrap();
                    let refused = Answer::Refused { problem: Problem::new(Code::WrongState, "not now") };
                    stops += u32::from(asked.request == Request::Stop);
                    asked.answer.send(if asked.request == Request::Pause { refused } else { Answer::Done }).unwrap();
                }
                listening.end().await;
            });
        });
        ready.recv().unwrap();
        thread
    }

    #[test]
    fn requests_are_answered_however_deep_the_run_folder_lies() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(200)).join("e".repeat(200));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join(NAME), "a stale one").unwrap();
        let supervisor = listen(&deep);
        assert_eq!(std::fs::metadata(deep.join(NAME)).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(request(&deep, Request::Ping).unwrap(), Answer::Done);
        assert!(matches!(request(&deep, Request::Pause).unwrap(), Answer::Refused { .. }));
        assert_eq!(request(&deep, Request::Stop).unwrap(), Answer::Done);
        assert_eq!(request(&deep, Request::Stop).unwrap(), Answer::Done, "the last answer arrives, too");
        supervisor.join().unwrap();
        assert!(!deep.join(NAME).exists());
        assert_eq!(request(&deep, Request::Ping).unwrap_err().code, Code::SupervisorLost);
    }

    #[test]
    fn strangers_and_idlers_do_not_keep_an_engine_from_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let _supervisor = listen(folder.path());
        let connect = || UnixStream::connect(folder.path().join(NAME)).unwrap();
        let _idle: Vec<UnixStream> = (0..CONNECTIONS - 2).map(|_| connect()).collect();
        let mut stranger = connect();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut said = String::new();
        stranger.read_to_string(&mut said).unwrap();
        assert!(said.contains("refused"), "{said}");
        assert_eq!(request(folder.path(), Request::Stop).unwrap(), Answer::Done);
    }

    #[test]
    fn a_supervisor_that_never_answers_is_lost_after_two_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let _deaf = std::os::unix::net::UnixListener::bind(folder.path().join(NAME)).unwrap();
        let start = Instant::now();
        assert_eq!(request(folder.path(), Request::Ping).unwrap_err().code, Code::SupervisorLost);
        assert!(start.elapsed() < WAIT + Duration::from_secs(1));
    }
}
