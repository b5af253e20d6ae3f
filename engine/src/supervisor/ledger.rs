//! The thread that writes the journal, so that a slow disk delays neither an answer nor a restart.
//!
//! Changes of state are made durable at once, metrics at most a second later. While the disk fails everything is kept and
//! tried again. Not here: the journal's format (`store::journal`), what is journaled (`core`).

use protocol::{Code, Event, Outcome, Problem};
use std::collections::VecDeque;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::journal::Writer;
use tokio::sync::mpsc;

/// Entries on their way to the thread: a tenth of a second of the fastest trainer; then its link waits.
const WAITING: usize = 1024;
/// Entries kept while the disk fails, besides the 4 MiB of the writer itself: the trainer was told to pause long before.
const KEPT: usize = 100_000;
/// Longest time a metric may wait for its fsync.
const METRIC_DELAY: Duration = Duration::from_secs(1);
/// Between two attempts at a failing disk.
const RETRY: Duration = Duration::from_secs(2);

/// What the thread says.
#[derive(Debug, PartialEq)]
pub enum Report {
    /// Everything up to this row of this attempt is durable.
    Durable {
        /// Attempt.
        attempt: u32,
        /// Step of its last row; 0 = none.
        step: u64,
    },
    /// The disk fails; said once until it works again.
    Failed(Problem),
}

struct Line {
    attempt: u32,
    at_ms: i64,
    event: Event,
}

/// The way to the thread.
pub struct Ledger {
    lines: mpsc::Sender<Line>,
    thread: JoinHandle<Outcome<()>>,
}

impl Ledger {
    /// Starts the thread; its reports come through the receiver.
    /// Errors: `Internal` where no thread can be made.
    pub fn start(writer: Writer) -> Outcome<(Ledger, mpsc::UnboundedReceiver<Report>)> {
        let (lines, incoming) = mpsc::channel(WAITING);
        // Unbounded but for its content: one report a second, or one a change of state, which `incoming` bounds.
        let (reports, reported) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new()
            .name("anneal-journal".into())
            .spawn(move || Keeper::new(writer, reports).run(incoming))
            .map_err(|e| Problem::internal("the journal's thread could not be started").why(e.to_string()))?;
        Ok((Ledger { lines, thread }, reported))
    }

    /// True while there is room for what a trainer sends; some is kept for the supervisor's own entries.
    pub fn has_room(&self) -> bool {
        self.lines.capacity() > WAITING / 4
    }

    /// Appends an event that happened now.
    pub async fn append(&self, attempt: u32, event: Event) {
        let at_ms = now_ms();
        if self.lines.send(Line { attempt, at_ms, event }).await.is_err() {
            note!("the journal's thread is gone");
        }
    }

    /// Makes everything durable and ends; gives up on a disk that fails for longer than `patience`.
    /// Errors: what kept the last entries from the disk.
    pub fn close(self, patience: Duration) -> Outcome<()> {
        drop(self.lines);
        let until = Instant::now() + patience;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        if !self.thread.is_finished() {
            return Err(Problem::new(Code::DiskFailed, "the last entries of the journal could not be written in time"));
        }
        self.thread.join().unwrap_or_else(|_| Err(Problem::internal("the journal's thread ended with a panic")))
    }
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_millis() as i64)
}

/// The thread's side.
struct Keeper {
    writer: Writer,
    reports: mpsc::UnboundedSender<Report>,
    kept: VecDeque<Line>,
    /// The last row appended.
    row: (u32, u64),
    dirty_since: Option<Instant>,
    urgent: bool,
    failing: bool,
}

impl Keeper {
    fn new(writer: Writer, reports: mpsc::UnboundedSender<Report>) -> Keeper {
        Keeper { writer, reports, kept: VecDeque::new(), row: (0, 0), dirty_since: None, urgent: false, failing: false }
    }

    fn run(mut self, mut incoming: mpsc::Receiver<Line>) -> Outcome<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|e| Problem::internal("no timer for the journal").why(e.to_string()))?;
        loop {
            let received = runtime.block_on(async {
                match self.wait() {
                    Some(wait) => tokio::time::timeout(wait, incoming.recv()).await.ok(),
                    None => Some(incoming.recv().await),
                }
            });
            match received {
                Some(Some(line)) => self.take(line, &mut incoming),
                Some(None) => return self.finish(),
                None => {}
            }
            self.write();
        }
    }

    /// How long nothing needs to be done.
    fn wait(&self) -> Option<Duration> {
        if self.failing {
            return Some(RETRY);
        }
        self.dirty_since.map(|since| METRIC_DELAY.saturating_sub(since.elapsed()))
    }

    /// Takes this line and whatever waits behind it.
    fn take(&mut self, first: Line, incoming: &mut mpsc::Receiver<Line>) {
        self.kept.push_back(first);
        for _ in 0..WAITING {
            let Ok(line) = incoming.try_recv() else { break };
            self.kept.push_back(line);
        }
        while self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }

    fn write(&mut self) {
        if let Err(problem) = self.append_kept().and_then(|()| self.bring_out()) {
            if !std::mem::replace(&mut self.failing, true) {
                let _ = self.reports.send(Report::Failed(problem));
            }
            self.urgent = true;
            return;
        }
        self.failing = false;
    }

    fn append_kept(&mut self) -> Outcome<()> {
        while let Some(line) = self.kept.front() {
            match self.writer.append(line.attempt, line.at_ms, line.event.clone()) {
                Ok(_) => {}
                Err(problem) if matches!(problem.code, Code::DiskFull | Code::DiskFailed) => return Err(problem),
                Err(problem) => self.replace(&problem)?,
            }
            let Some(line) = self.kept.pop_front() else { break };
            self.urgent |= !line.event.is_metric();
            match line.event {
                Event::Step(step) => self.row = (line.attempt, step.step),
                Event::Skipped { step, .. } | Event::Rewound { step, .. } => self.row = (line.attempt, step),
                _ => {}
            }
            self.dirty_since.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// An event that no journal takes (too long, not finite) is said in its place.
    fn replace(&mut self, problem: &Problem) -> Outcome<()> {
        let Some(line) = self.kept.front() else { return Ok(()) };
        let what = format!("an event of step {} could not be journaled", line.event.step());
        let problem = Problem::internal(what).why(problem.what.clone());
        let warning = Event::Warning { step: line.event.step(), problem };
        self.writer.append(line.attempt, line.at_ms, warning).map(drop)
    }

    fn bring_out(&mut self) -> Outcome<()> {
        let Some(since) = self.dirty_since else { return Ok(()) };
        if !self.urgent && !self.failing && since.elapsed() < METRIC_DELAY {
            return self.writer.flush();
        }
        self.writer.sync()?;
        let (attempt, step) = self.row;
        if let Some(problem) = self.writer.notice() {
            note!("journal: {problem}");
            self.writer.append(attempt.max(1), now_ms(), Event::Warning { step, problem })?;
            self.writer.sync()?;
        }
        (self.dirty_since, self.urgent) = (None, false);
        let _ = self.reports.send(Report::Durable { attempt, step });
        Ok(())
    }

    /// The last entries: tried until they are durable; `close` decides how long it waits for that.
    fn finish(mut self) -> Outcome<()> {
        self.urgent = true;
        loop {
            self.write();
            if !self.failing {
                return Ok(());
            }
            std::thread::sleep(RETRY);
        }
    }
}
