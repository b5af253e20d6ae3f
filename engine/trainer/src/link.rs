//! The trainer's side of fd 3: JSON lines of `protocol::link`, read by a thread of their own, written in order.
//!
//! Not here: what a command does (`verb/run.rs`); the supervisor's side (engine/supervisor).

use protocol::link::{FromTrainer, Hello, ToTrainer};
use protocol::{Code, Event, Outcome, Problem, limits};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Descriptor of the control socket.
pub const CONTROL: i32 = 3;
/// Commands that wait for the loop. A supervisor sends one and waits for its event; more than this is a defect of the
/// other side, and dropping the newest keeps the older ones in their order.
const COMMANDS: usize = 16;
/// Longest part of a problem sent in a message: the seven parts together stay far below `limits::MESSAGE_BYTES`,
/// even where JSON doubles every byte.
const PART_BYTES: usize = 4 * 1024;

/// Commands, acknowledgements and the end of the other side, as the loop sees them.
#[derive(Default)]
struct Inbox {
    commands: VecDeque<ToTrainer>,
    acknowledged: u64,
    gone: Option<Problem>,
    /// This side has closed the link.
    closed: bool,
}

/// What the reader thread and the loop share.
#[derive(Default)]
struct Shared {
    inbox: Mutex<Inbox>,
    changed: Condvar,
    patience_ms: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        // A poisoned inbox is still whole: every change to it is a single assignment or push.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn receive(&self, message: ToTrainer) {
        self.change(|inbox| match message {
            ToTrainer::Acknowledge { step } => inbox.acknowledged = inbox.acknowledged.max(step),
            command if inbox.commands.back() == Some(&command) => {}
            command if inbox.commands.len() == COMMANDS => eprintln!("too many commands wait; {command:?} is dropped"),
            command => inbox.commands.push_back(command),
        });
    }
}

/// What a wait ended with.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// A command.
    Command(ToTrainer),
    /// The supervisor is gone, and why.
    Gone(Problem),
    /// Steps up to this one are in the journal.
    Acknowledged(u64),
}

/// The control socket.
pub struct Link {
    shared: Arc<Shared>,
    outgoing: Mutex<UnixStream>,
}

/// A way to put a command into the loop's queue from elsewhere (signals).
#[derive(Clone)]
pub struct Knock(Arc<Shared>);

impl Knock {
    /// Queues `Stop`, as a supervisor would.
    pub fn stop(&self) {
        self.0.receive(ToTrainer::Stop);
    }
}

/// Takes over fd 3. Errors: `WrongState` when it is not there or no socket, as when started by hand.
pub fn control_socket() -> Outcome<UnixStream> {
    let by_hand = |why: String| {
        Problem::new(Code::WrongState, "`anneal-trainer run` has no control socket (fd 3)")
            .why(why)
            .remedy("start jobs with `anneal train` or `anneal resume`")
    };
    // SAFETY: the descriptor is only asked about; a closed one makes the call below fail with EBADF.
    let asked = unsafe { BorrowedFd::borrow_raw(CONTROL) };
    rustix::net::sockopt::socket_type(asked).map_err(|e| by_hand(e.to_string()))?;
    // SAFETY: fd 3 is an open socket (asked above) that the supervisor made for this process; nothing else here owns it.
    Ok(UnixStream::from(unsafe { OwnedFd::from_raw_fd(CONTROL) }))
}

impl Link {
    /// Says hello and starts the reader. When the other side ends, the loop is told (`Heard::Gone`); should the process
    /// still be there after the patience set with `set_patience`, the reader calls `overdue`.
    pub fn open(stream: UnixStream, overdue: impl FnOnce() + Send + 'static) -> Outcome<Link> {
        let failed = |e: std::io::Error| Problem::internal("the control socket cannot be used").why(e.to_string());
        let incoming = stream.try_clone().map_err(failed)?;
        let shared = Arc::new(Shared { patience_ms: AtomicU64::new(30_000), ..Shared::default() });
        let link = Link { shared: Arc::clone(&shared), outgoing: Mutex::new(stream) };
        link.write(&Hello { protocol: limits::PROTOCOL });
        let read = move || {
            let why = listen(BufReader::new(incoming), &shared);
            if shared.lock().closed {
                return;
            }
            eprintln!("control socket: {why}");
            shared.change(|inbox| inbox.gone = Some(why));
            std::thread::sleep(Duration::from_millis(shared.patience_ms.load(Ordering::Relaxed)));
            overdue();
        };
        std::thread::Builder::new().name("anneal-link".into()).spawn(read).map_err(failed)?;
        Ok(link)
    }

    /// How long the process may live on after the supervisor is gone.
    pub fn set_patience(&self, patience: Duration) {
        self.shared.patience_ms.store(patience.as_millis() as u64, Ordering::Relaxed);
    }

    /// A handle that signals use.
    pub fn knock(&self) -> Knock {
        Knock(Arc::clone(&self.shared))
    }

    /// The next command, if one waits; `Gone` once the supervisor is gone and every command was taken.
    pub fn poll(&self) -> Option<Heard> {
        let mut inbox = self.shared.lock();
        take(&mut inbox)
    }

    /// Waits for the next command or the supervisor's end. Sleeps; never spins.
    pub fn wait(&self) -> Heard {
        self.wait_until(u64::MAX)
    }

    /// Waits until steps up to `step` are acknowledged, a command comes or the supervisor is gone.
    pub fn wait_until(&self, step: u64) -> Heard {
        let mut inbox = self.shared.lock();
        loop {
            if let Some(heard) = take(&mut inbox) {
                return heard;
            }
            if inbox.acknowledged >= step {
                return Heard::Acknowledged(inbox.acknowledged);
            }
            inbox = self.shared.changed.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Steps up to this one are in the journal.
    pub fn acknowledged(&self) -> u64 {
        self.shared.lock().acknowledged
    }

    /// Sends an event for the journal.
    pub fn event(&self, event: Event) {
        self.write(&FromTrainer::Event { event: bounded(event) });
    }

    /// Says that a long phase is making progress.
    pub fn alive(&self, phase: &str) {
        self.write(&FromTrainer::Alive { phase: phase.to_owned() });
    }

    /// The last word before a clean exit after `Stop`.
    pub fn leaving(&self, step: u64) {
        self.write(&FromTrainer::Leaving { step });
    }

    /// The last word of an attempt that cannot go on while the job can.
    pub fn broken(&self, problem: Problem) {
        self.write(&FromTrainer::Broken { problem });
    }

    /// Writes one line. A failed write means that the supervisor is gone, which the reader thread finds out by itself.
    fn write<T: serde::Serialize>(&self, message: &T) {
        let Ok(mut line) = serde_json::to_vec(message) else { return };
        line.push(b'\n');
        let mut outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = outgoing.write_all(&line) {
            eprintln!("a message could not be sent: {e}");
        }
    }
}

/// Closes the socket, so that the other side and the reader thread see the end.
impl Drop for Link {
    fn drop(&mut self) {
        self.shared.change(|inbox| inbox.closed = true);
        let outgoing = self.outgoing.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Already closed where the other side was faster.
        let _ = outgoing.shutdown(std::net::Shutdown::Both);
    }
}

fn take(inbox: &mut Inbox) -> Option<Heard> {
    if let Some(command) = inbox.commands.pop_front() {
        return Some(Heard::Command(command));
    }
    inbox.gone.clone().map(Heard::Gone)
}

/// Reads messages until the other side ends; the return value says why it did.
fn listen(mut incoming: impl BufRead, shared: &Shared) -> Problem {
    let mut greeted = false;
    loop {
        let line = match read_line(&mut incoming) {
            Ok(Some(line)) => line,
            Ok(None) => return Problem::new(Code::SupervisorLost, "the supervisor is gone"),
            Err(problem) => return problem,
        };
        if !greeted {
            if let Err(problem) = greet(&line) {
                return problem;
            }
            greeted = true;
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(message) => shared.receive(message),
            Err(e) => eprintln!("a message of the supervisor is not understood and left out: {e}"),
        }
    }
}

fn greet(line: &[u8]) -> Outcome<()> {
    let theirs = serde_json::from_slice::<Hello>(line).map(|hello| hello.protocol);
    if theirs.as_ref().is_ok_and(|version| *version == limits::PROTOCOL) {
        return Ok(());
    }
    let theirs = theirs.map_or("none".to_owned(), |version| version.to_string());
    let what = format!("the supervisor speaks protocol {theirs}, this trainer protocol {}", limits::PROTOCOL);
    Err(Problem::new(Code::ProtocolMismatch, what).remedy("start the job again with `anneal resume`"))
}

/// One line without its end; `None` at the end of the stream. A torn last line is no message.
fn read_line(incoming: &mut impl BufRead) -> Outcome<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut bounded = incoming.take(limits::MESSAGE_BYTES as u64 + 1);
    match bounded.read_until(b'\n', &mut line) {
        Ok(_) if line.last() == Some(&b'\n') => {
            line.pop();
            Ok(Some(line))
        }
        Ok(n) if n > limits::MESSAGE_BYTES => {
            let what = format!("a message of the supervisor is longer than {} bytes", limits::MESSAGE_BYTES);
            Err(Problem::new(Code::ProtocolMismatch, what))
        }
        Ok(_) => Ok(None),
        Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(None),
        Err(e) => Err(Problem::new(Code::SupervisorLost, "the control socket cannot be read").why(e.to_string())),
    }
}

/// The event with its problem's texts cut to a length that always fits a message.
fn bounded(mut event: Event) -> Event {
    match &mut event {
        Event::Warning { problem, .. }
        | Event::Restarted { why: problem, .. }
        | Event::Interrupted { problem, .. }
        | Event::Skipped { problem, .. }
        | Event::Rewound { problem, .. }
        | Event::Failed { problem, .. } => shorten(problem),
        _ => {}
    }
    event
}

fn shorten(problem: &mut Problem) {
    let place = &mut problem.place;
    let texts = [&mut problem.what, &mut problem.why, &mut problem.kept, &mut problem.remedy];
    let names = [&mut place.file, &mut place.tensor, &mut place.field];
    for text in texts.into_iter().chain(names.into_iter().flatten()) {
        if text.len() > PART_BYTES {
            text.truncate(text.floor_char_boundary(PART_BYTES));
            text.push('…');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn pair() -> (Link, UnixStream, mpsc::Receiver<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (overdue, told) = mpsc::channel();
        let link = Link::open(ours, move || overdue.send(()).unwrap_or(())).unwrap();
        (link, theirs, told)
    }

    fn say(theirs: &mut UnixStream, line: &str) {
        theirs.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    #[test]
    fn commands_arrive_in_order_and_acknowledgements_do_not_queue() {
        let (link, mut theirs, _told) = pair();
        say(&mut theirs, r#"{"protocol":1}"#);
        for step in 1..=1000 {
            say(&mut theirs, &format!(r#"{{"command":"acknowledge","step":{step}}}"#));
        }
        say(&mut theirs, r#"{"command":"pause"}"#);
        say(&mut theirs, r#"{"command":"resume"}"#);
        assert_eq!(link.wait(), Heard::Command(ToTrainer::Pause));
        assert_eq!(link.wait(), Heard::Command(ToTrainer::Resume));
        assert_eq!((link.acknowledged(), link.poll()), (1000, None));
    }

    #[test]
    fn a_lost_supervisor_is_seen_and_overstaying_ends_the_process() {
        let (link, mut theirs, told) = pair();
        link.set_patience(Duration::from_millis(20));
        say(&mut theirs, r#"{"protocol":1}"#);
        say(&mut theirs, r#"{"command":"snapshot"}"#);
        drop(theirs);
        assert_eq!(link.wait(), Heard::Command(ToTrainer::Snapshot));
        let Heard::Gone(problem) = link.wait() else { panic!("a command came from nowhere") };
        assert_eq!(problem.code, Code::SupervisorLost);
        told.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn another_protocol_version_is_refused_with_both_numbers() {
        let (link, mut theirs, _told) = pair();
        link.set_patience(Duration::ZERO);
        say(&mut theirs, r#"{"protocol":9}"#);
        let Heard::Gone(problem) = link.wait() else { panic!("a command came from nowhere") };
        assert_eq!(problem.code, Code::ProtocolMismatch);
        assert!(problem.what.contains('9') && problem.what.contains('1'), "{problem}");
    }

    #[test]
    fn an_endless_line_ends_the_link_and_takes_no_memory() {
        let (link, mut theirs, _told) = pair();
        say(&mut theirs, r#"{"protocol":1}"#);
        let flood = std::thread::spawn(move || theirs.write_all(&vec![b'x'; 4 * limits::MESSAGE_BYTES]));
        let Heard::Gone(problem) = link.wait() else { panic!("a command came from nowhere") };
        assert_eq!(problem.code, Code::ProtocolMismatch);
        drop(link);
        let _ = flood.join();
    }

    #[test]
    fn an_unknown_message_is_left_out_and_the_next_one_counts() {
        let (link, mut theirs, _told) = pair();
        say(&mut theirs, r#"{"protocol":1}"#);
        say(&mut theirs, r#"{"command":"dance"}"#);
        say(&mut theirs, r#"{"command":"stop"}"#);
        assert_eq!(link.wait(), Heard::Command(ToTrainer::Stop));
    }

    #[test]
    fn a_problem_of_any_length_fits_a_message() {
        let (link, theirs, _told) = pair();
        let problem = Problem::new(Code::Internal, "\u{1}\"".repeat(100_000)).why("ü".repeat(100_000));
        link.event(Event::Failed { step: 3, problem });
        let mut lines = BufReader::new(theirs).lines();
        assert_eq!(lines.next().unwrap().unwrap(), r#"{"protocol":1}"#);
        let line = lines.next().unwrap().unwrap();
        assert!(line.len() <= limits::MESSAGE_BYTES);
        assert!(matches!(serde_json::from_str(&line).unwrap(), FromTrainer::Event { event: Event::Failed { .. } }));
    }

    #[test]
    fn waiting_for_the_journal_ends_with_the_acknowledgement() {
        let (link, mut theirs, _told) = pair();
        say(&mut theirs, r#"{"protocol":1}"#);
        say(&mut theirs, r#"{"command":"acknowledge","step":7}"#);
        assert_eq!(link.wait_until(6), Heard::Acknowledged(7));
    }
}
