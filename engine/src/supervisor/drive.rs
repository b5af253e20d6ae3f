//! Carries out what `core` decides: processes, sockets, timers, the journal and the locks. No decision is taken here.

use super::core::{Action, Core, Death, Exit, Input, Rules, signal_name};
use super::ledger::{Ledger, Report};
use super::lines::{Lines, line_of};
use super::log::Log;
use super::reap;
use super::socket::{Asked, Listening};
use super::spawn::{Binary, Start, Started, keep_places};
use crate::queue::{DeviceLocks, Ticket};
use protocol::link::{Answer, FromTrainer, Hello, ToTrainer};
use protocol::{Code, Event, Outcome, Plan, Problem, limits};
use rustix::process::{Pid, Signal};
use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::checkpoint;
use store::disk::RealDisk;
use store::home::Home;
use store::journal::{Reader, Writer};
use store::lock::{self, Lock};
use store::run::RunFolder;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// Between two looks at the queue.
const QUEUE_LOOK: Duration = Duration::from_millis(200);
/// Time for the last words of a dead trainer: its link, which a child of its own might hold open, and its output.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time for the last entries of the journal on a failing disk.
const LAST_ENTRIES: Duration = Duration::from_secs(30);
/// Commands that wait for a trainer to read them, in bytes: a deaf one is found by its silence, not by a full buffer.
const OUTGOING_BYTES: usize = 64 * 1024;

/// What a supervisor is started with.
pub struct Setting {
    /// HOME.
    pub home: Home,
    /// The run.
    pub run: RunFolder,
    /// The trainer's binary.
    pub trainer: PathBuf,
    /// Devices the job needs.
    pub devices: Vec<String>,
    /// Bounds on waiting.
    pub rules: Rules,
}

impl Setting {
    /// The setting of a planned run.
    pub fn new(home: Home, run: RunFolder, trainer: PathBuf) -> Outcome<Setting> {
        let plan = run.plan()?;
        Ok(Setting { home, run, trainer, rules: rules(&plan), devices: plan.devices })
    }
}

/// The rules of a plan.
pub fn rules(plan: &Plan) -> Rules {
    Rules { checkpoint_bytes: plan.memory.checkpoint_bytes, ..Rules::default() }
}

/// Supervises a run until it ends; `ready` is called once the run is held and engines are listened to. Returns the exit
/// status. Errors: what kept it from beginning; nothing was started then.
pub fn run(setting: Setting, ready: impl FnOnce()) -> Outcome<i32> {
    let failed = |doing: &str| {
        let what = format!("{doing} failed");
        move |e: std::io::Error| Problem::internal(what).why(e.to_string())
    };
    let _places = keep_places(setting.devices.len()).map_err(failed("reserving descriptors"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed("starting"))?;
    let binary =
        Binary::open(&setting.trainer).map_err(|e| Problem::io(&e, "opening the trainer", &setting.trainer))?;
    let held = take_run(&setting)?;
    let mut writer = Writer::open(&setting.run.journal(), setting.run.id())?;
    close_lost_attempt(&mut writer)?;
    if let Some(problem) = lost_checkpoint(&setting.run)? {
        let (attempt, step) = (writer.last().map_or(1, |last| last.attempt + 1), newest_checkpoint(&setting.run));
        writer.append(attempt, super::ledger::now_ms(), Event::Warning { step, problem })?;
        writer.sync()?;
    }
    runtime.block_on(async {
        let mut drive = Drive::begin(setting, binary, held, writer)?;
        ready();
        drive.queue_up().await;
        while drive.exit.is_none() {
            drive.turn().await;
        }
        Ok(drive.end().await)
    })
}

/// Says in the journal that an earlier supervisor went without a last word; the time is that of its last sign of life.
fn close_lost_attempt(writer: &mut Writer) -> Outcome<()> {
    let Some(last) = writer.last().filter(|last| !last.event.ends()).cloned() else { return Ok(()) };
    let problem = Problem::new(Code::SupervisorLost, "supervisor lost")
        .why("the process that watched this job ended without a word")
        .kept("every checkpoint and the journal");
    writer.append(last.attempt, last.at_ms, Event::Interrupted { step: last.event.step(), problem })?;
    writer.sync()
}

/// What is to be said where the newest checkpoint that the journal tells of has gone: the run goes on from an older one.
/// Retention never removes the newest, so a folder that is not there was taken away by someone else.
/// Errors: `CheckpointMissing` where none is left: a run never begins again at step 0 unasked.
pub fn lost_checkpoint(run: &RunFolder) -> Outcome<Option<Problem>> {
    let mut reader = Reader::open(&run.journal(), 0)?;
    let mut newest = None;
    while let Some((entry, _)) = reader.next()? {
        if let Event::Checkpoint { step, .. } = entry.event {
            newest = Some(step);
        }
    }
    let Some(step) = newest else { return Ok(None) };
    let left = checkpoint::list(&RealDisk, &run.checkpoints())?;
    let place = run.checkpoints().join(checkpoint::folder_name(step));
    let Some(from) = left.iter().filter(|row| row.complete).map(|row| row.step).max() else {
        if !left.is_empty() {
            // Damaged ones are told by the trainer, each by its name.
            return Ok(None);
        }
        let what = format!("the checkpoint of step {step} and all before it are gone");
        return Err(Problem::new(Code::CheckpointMissing, what)
            .file(&run.checkpoints())
            .kept("the journal and the history")
            .remedy("bring the folder back, or start a new job"));
    };
    if from >= step || left.iter().any(|row| row.step == step) {
        return Ok(None);
    }
    Ok(Some(
        Problem::new(Code::CheckpointMissing, format!("the checkpoint of step {step} is gone"))
            .why("the journal says that it was written, and its folder is not there")
            .file(&place)
            .kept(format!("the checkpoint of step {from} and the journal"))
            .remedy(format!(
                "nothing: the run goes on from step {from}; stop it and bring the folder back to spare steps {} to {step}",
                from + 1
            )),
    ))
}

/// The run's lock. A trainer that an earlier supervisor left behind gets the time to save and leave.
fn take_run(setting: &Setting) -> Outcome<Lock> {
    let path = setting.run.lock();
    if let Some(lock) = lock::try_lock(&path)? {
        return Ok(lock);
    }
    reap::reap(setting.run.path(), setting.rules.grace())?;
    lock::try_lock(&path)?
        .ok_or_else(|| Problem::new(Code::Busy, "the job is being run by another process").file(&path))
}

/// A running trainer.
struct Trainer {
    attempt: u32,
    child: tokio::process::Child,
    incoming: Lines<OwnedReadHalf>,
    /// False once its end of the link is closed or broken.
    listening: bool,
    outgoing: Outgoing,
    printing: JoinHandle<()>,
    memory_kills: u64,
}

/// What a trainer brings.
enum Heard {
    Message(FromTrainer),
    Breach(Problem),
    LinkClosed,
    Gone(std::io::Result<ExitStatus>),
}

/// Something that happened.
enum Happened {
    Input(Input),
    Asked(Asked),
    Trainer(Heard),
    QueueLook,
    Nothing,
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

struct Drive {
    setting: Setting,
    binary: Binary,
    held: Lock,
    core: Core,
    began: Instant,
    log: Log,
    ledger: Ledger,
    reports: mpsc::UnboundedReceiver<Report>,
    listening: Listening,
    requests: mpsc::Receiver<Asked>,
    signals: Signals,
    ticket: Option<Ticket>,
    /// The queue could not be looked at; noted once.
    queue_trouble: bool,
    devices: Option<DeviceLocks>,
    trainer: Option<Trainer>,
    asked: u64,
    answers: HashMap<u64, oneshot::Sender<Answer>>,
    exit: Option<i32>,
}

impl Drive {
    fn begin(setting: Setting, binary: Binary, held: Lock, writer: Writer) -> Outcome<Drive> {
        let (attempts, newest) = writer.last().map_or((0, 0), |last| (last.attempt, last.event.step()));
        let safe = newest_checkpoint(&setting.run);
        let core = Core::new(setting.rules.clone(), attempts + 1, newest.max(safe), safe);
        let signals = Signals::watch().map_err(|e| Problem::internal("watching signals failed").why(e.to_string()))?;
        let ticket = Ticket::take(&setting.home, setting.run.id(), &setting.devices)?;
        let (listening, requests) = Listening::start(setting.run.path())?;
        let (ledger, reports) = Ledger::start(writer)?;
        Ok(Drive {
            log: Log::new(&setting.run.trainer_log()),
            setting,
            binary,
            held,
            core,
            began: Instant::now(),
            ledger,
            reports,
            listening,
            requests,
            signals,
            ticket: Some(ticket),
            queue_trouble: false,
            devices: None,
            trainer: None,
            asked: 0,
            answers: HashMap::new(),
            exit: None,
        })
    }

    /// Where the devices are free, the wait is over before anyone sees it.
    async fn queue_up(&mut self) {
        self.look_at_queue().await;
        if let Some(ticket) = &self.ticket {
            let (ticket, devices) = (ticket.number(), self.setting.devices.clone());
            self.put(Input::Queued { ticket, devices }).await;
        }
    }

    async fn look_at_queue(&mut self) {
        let Some(ticket) = &self.ticket else { return };
        match ticket.try_acquire() {
            Ok(Some(devices)) => {
                (self.devices, self.ticket) = (Some(devices), None);
                self.put(Input::Acquired).await;
            }
            Ok(None) => {}
            // The next look may do better; a job that waits can be stopped all the while.
            Err(problem) if !self.queue_trouble => {
                self.queue_trouble = true;
                note!("queue: {problem}");
            }
            Err(_) => {}
        }
    }

    /// Waits for one thing to happen and deals with it.
    async fn turn(&mut self) {
        match self.happening().await {
            Happened::Input(input) => self.put(input).await,
            Happened::Asked(asked) => {
                self.asked += 1;
                self.answers.insert(self.asked, asked.answer);
                self.put(Input::Request(self.asked, asked.request)).await;
            }
            Happened::Trainer(Heard::Message(message)) => self.put(Input::Message(message)).await,
            Happened::Trainer(Heard::Breach(problem)) => self.put(Input::Breach(problem)).await,
            Happened::Trainer(Heard::LinkClosed) => self.put(Input::LinkClosed).await,
            Happened::Trainer(Heard::Gone(status)) => self.bury(status).await,
            Happened::QueueLook => self.look_at_queue().await,
            Happened::Nothing => {}
        }
    }

    /// Every branch may be given up at any moment without losing anything.
    async fn happening(&mut self) -> Happened {
        let wake = self.core.deadline().map_or(Instant::now(), |at| self.began + at);
        let room = self.ledger.has_room();
        tokio::select! {
            _ = self.signals.terminate.recv() => Happened::Input(Input::Terminate),
            _ = self.signals.interrupt.recv() => Happened::Input(Input::Terminate),
            _ = self.signals.hangup.recv() => Happened::Nothing,
            Some(report) = self.reports.recv() => Happened::Input(match report {
                Report::Durable { attempt, step } => Input::Durable { attempt, step },
                Report::Failed(problem) => Input::JournalFailed(problem),
            }),
            Some(asked) = self.requests.recv() => Happened::Asked(asked),
            heard = hear(&mut self.trainer, room) => Happened::Trainer(heard),
            () = tokio::time::sleep(QUEUE_LOOK), if self.ticket.is_some() => Happened::QueueLook,
            () = tokio::time::sleep_until(wake.into()) => Happened::Input(if room { Input::Tick } else { Input::Deaf }),
        }
    }

    /// Gives an input to the core and does what it says.
    async fn put(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for action in self.core.step(input, self.began.elapsed()) {
                inputs.extend(self.carry_out(action).await);
            }
        }
    }

    /// Does one thing; what comes of it at once is the next input.
    async fn carry_out(&mut self, action: Action) -> Option<Input> {
        match action {
            Action::Spawn { attempt } => return Some(self.spawn(attempt)),
            Action::Tell(command) => {
                if let Some(trainer) = &mut self.trainer {
                    trainer.outgoing.tell(command);
                }
            }
            Action::Journal { attempt, event } => self.ledger.append(attempt, event).await,
            Action::Answer(id, answer) => {
                if let Some(asker) = self.answers.remove(&id) {
                    // An asker that went away needs no answer.
                    let _ = asker.send(answer);
                }
            }
            Action::Kill => self.kill(),
            Action::Exit(status) => self.exit = Some(status),
        }
        None
    }

    fn spawn(&mut self, attempt: u32) -> Input {
        let devices = self.devices.as_ref().map_or(&[][..], |devices| &devices.locks);
        let start = Start {
            binary: &self.binary,
            home: self.setting.home.path(),
            run_folder: self.setting.run.path(),
            run_lock: self.held.as_fd(),
            device_locks: devices.iter().map(AsFd::as_fd).collect(),
        };
        let memory_kills = memory_kills();
        if attempt > 1 {
            let from = newest_checkpoint(&self.setting.run);
            self.log.note(&format!("attempt {attempt} is started, from step {from}"));
        }
        let started = start.run().and_then(|started| {
            let Started { child, link, output } = started;
            Ok((child, link, self.log.attach(output)?))
        });
        match started {
            Ok((child, link, printing)) => {
                let (incoming, outgoing) = link.into_split();
                self.trainer = Some(Trainer {
                    attempt,
                    child,
                    incoming: Lines::new(incoming, "trainer"),
                    listening: true,
                    outgoing: Outgoing::new(outgoing),
                    printing,
                    memory_kills,
                });
                Input::Spawned
            }
            Err(e) => Input::SpawnFailed(Problem::io(&e, "starting the trainer", &self.setting.trainer)),
        }
    }

    /// The trainer is not waited for yet, so its number is still its own, and its group's.
    fn kill(&self) {
        let pid = self.trainer.as_ref().and_then(|trainer| trainer.child.id());
        if let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid as i32)) {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }

    /// Takes in what a dead trainer still said, then that it is dead.
    async fn bury(&mut self, status: std::io::Result<ExitStatus>) {
        let Some(mut trainer) = self.trainer.take() else { return };
        while let Ok(Ok(Some(message))) = tokio::time::timeout(LAST_WORDS, trainer.incoming.next()).await {
            self.put(Input::Message(message)).await;
        }
        let until = Instant::now() + LAST_WORDS;
        while !trainer.printing.is_finished() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let death = Death {
            how: exit_of(status),
            safe_step: newest_checkpoint(&self.setting.run),
            tail: self.log.tail(),
            memory_kill: memory_kills() > trainer.memory_kills,
        };
        note!("attempt {}: the trainer ended ({:?})", trainer.attempt, death.how);
        match death.how {
            Exit::Code(0) => {}
            Exit::Code(status) => self.log.note(&format!("attempt {} exited with {status}", trainer.attempt)),
            Exit::Signal(signal) => {
                let name = signal_name(signal);
                self.log.note(&format!("attempt {} was killed by signal {signal} ({name})", trainer.attempt));
            }
        }
        self.put(Input::Exited(death)).await;
    }

    /// Everything asked is answered, everything journaled is durable; the locks go with the process.
    async fn end(mut self) -> i32 {
        (self.ticket, self.devices) = (None, None);
        self.answers.clear();
        self.requests.close();
        self.listening.end().await;
        if let Err(problem) = self.ledger.close(LAST_ENTRIES) {
            note!("journal: {problem}");
        }
        self.exit.unwrap_or(1)
    }
}

impl Signals {
    fn watch() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            // Watched so that it does not end the process: a closed terminal is no reason to stop a job.
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// The next thing a trainer brings; never, where there is none. While the journal has no room its messages wait.
async fn hear(trainer: &mut Option<Trainer>, room: bool) -> Heard {
    let Some(trainer) = trainer else { return std::future::pending().await };
    loop {
        tokio::select! {
            status = trainer.child.wait() => return Heard::Gone(status),
            message = trainer.incoming.next(), if trainer.listening && room => {
                if let Ok(Some(message)) = message {
                    return Heard::Message(message);
                }
                trainer.listening = false;
                return message.map_or_else(Heard::Breach, |_| Heard::LinkClosed);
            }
            () = trainer.outgoing.flush(), if trainer.outgoing.waits() => {}
        }
    }
}

/// Commands on their way to a trainer. They never make the supervisor wait.
struct Outgoing {
    stream: OwnedWriteHalf,
    bytes: Vec<u8>,
    /// The newest acknowledgement; an older one that was not sent yet is not needed any more.
    acknowledge: Option<u64>,
}

impl Outgoing {
    fn new(stream: OwnedWriteHalf) -> Outgoing {
        Outgoing { stream, bytes: line_of(&Hello { protocol: limits::PROTOCOL }), acknowledge: None }
    }

    fn tell(&mut self, command: ToTrainer) {
        match command {
            ToTrainer::Acknowledge { step } => self.acknowledge = Some(step),
            command if self.bytes.len() < OUTGOING_BYTES => self.bytes.extend(line_of(&command)),
            command => note!("the trainer does not listen; {command:?} is dropped"),
        }
    }

    fn waits(&self) -> bool {
        !self.bytes.is_empty() || self.acknowledge.is_some()
    }

    async fn flush(&mut self) {
        if self.bytes.is_empty()
            && let Some(step) = self.acknowledge.take()
        {
            self.bytes = line_of(&ToTrainer::Acknowledge { step });
        }
        if self.stream.writable().await.is_err() {
            return self.give_up();
        }
        match self.stream.try_write(&self.bytes) {
            Ok(sent) => drop(self.bytes.drain(..sent)),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.give_up(),
        }
    }

    /// Nobody will ever read it: the closed link is noticed on the reading side.
    fn give_up(&mut self) {
        self.bytes.clear();
        self.acknowledge = None;
    }
}

fn exit_of(status: std::io::Result<ExitStatus>) -> Exit {
    match status {
        Ok(status) => match status.signal() {
            Some(signal) => Exit::Signal(signal),
            None => Exit::Code(status.code().unwrap_or(-1)),
        },
        Err(_) => Exit::Code(-1),
    }
}

/// Step of the newest checkpoint whose files are all there; 0 = none.
fn newest_checkpoint(run: &RunFolder) -> u64 {
    let rows = checkpoint::list(&RealDisk, &run.checkpoints()).unwrap_or_default();
    rows.iter().filter(|row| row.complete).map(|row| row.step).max().unwrap_or(0)
}

/// Processes this kernel has killed for lack of memory.
fn memory_kills() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    counters.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
