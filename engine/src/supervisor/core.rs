//! Every decision of a supervisor, as a state machine: inputs and the time go in, actions come out. It reads no clock,
//! opens no file and starts no process, so thousands of histories can be played through it in a second (`simulation`).
//!
//! Not here: how actions are carried out (`drive`), what a trainer does with a command (`trainer`).

use protocol::event::Event;
use protocol::limits;
use protocol::link::{Answer, FromTrainer, Request, ToTrainer};
use protocol::{Code, Problem};
use std::time::Duration;

/// Time since the supervisor began, on a clock that never jumps.
pub type Now = Duration;

/// Bounds on waiting and what a stop may cost.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Silence allowed beyond the longest normal step.
    pub quiet: Duration,
    /// Silence allowed while loading, in the first step, evaluating or saving.
    pub long_phase: Duration,
    /// Waits before the first, second, … restart in a row; the last one repeats.
    pub back_off: Vec<Duration>,
    /// Time to stop in, besides writing a checkpoint.
    pub stop: Duration,
    /// Time between a trainer's last words and its exit.
    pub leave: Duration,
    /// Time after SIGKILL until a process counts as stuck in the kernel.
    pub stuck: Duration,
    /// Size of one checkpoint, from the plan.
    pub checkpoint_bytes: u64,
    /// Bytes a second to disk, assumed until a checkpoint has shown it.
    pub disk_rate: f64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            quiet: Duration::from_secs(60),
            long_phase: Duration::from_secs(600),
            back_off: [0, 1, 4].map(Duration::from_secs).to_vec(),
            stop: Duration::from_secs(30),
            leave: Duration::from_secs(10),
            stuck: Duration::from_secs(30),
            checkpoint_bytes: 0,
            disk_rate: 50e6, // a slow laptop disk; too slow a guess only means more patience
        }
    }
}

impl Rules {
    /// Time to write a checkpoint and exit: 30 s + 1.5 × bytes / disk rate.
    pub fn grace(&self) -> Duration {
        let seconds = 1.5 * self.checkpoint_bytes as f64 / self.disk_rate.max(1e3);
        self.stop + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(86_400))
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Exit status.
    Code(i32),
    /// Signal.
    Signal(i32),
}

/// The end of a trainer, with what the disk and its log say about it.
#[derive(Clone, Debug)]
pub struct Death {
    /// How.
    pub how: Exit,
    /// Step of the newest checkpoint; 0 = none.
    pub safe_step: u64,
    /// Last lines of its log.
    pub tail: Vec<String>,
    /// The kernel counted a kill for lack of memory while it lived.
    pub memory_kill: bool,
}

/// What happens to a supervisor.
#[derive(Clone, Debug)]
pub enum Input {
    /// The devices are busy; the job waits with this ticket.
    Queued {
        /// Ticket.
        ticket: u64,
        /// Devices.
        devices: Vec<String>,
    },
    /// All devices are held.
    Acquired,
    /// The trainer process is there.
    Spawned,
    /// The trainer process could not be made.
    SpawnFailed(Problem),
    /// The trainer says something.
    Message(FromTrainer),
    /// The trainer said something that is no message.
    Breach(Problem),
    /// The trainer's end of the link is closed.
    LinkClosed,
    /// The trainer is gone; everything it said before has been put in.
    Exited(Death),
    /// An engine asks; answered exactly once under this number.
    Request(u64, Request),
    /// SIGTERM to the supervisor.
    Terminate,
    /// Everything journaled up to this row of this attempt is durable.
    Durable {
        /// Attempt.
        attempt: u32,
        /// Step of the row; 0 = none yet.
        step: u64,
    },
    /// The journal could not be written; the lines are kept and tried again.
    JournalFailed(Problem),
    /// Time has passed.
    Tick,
    /// Time has passed while the trainer's messages waited for a slow journal: its silence means nothing.
    Deaf,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start the trainer.
    Spawn {
        /// Attempt, from 1.
        attempt: u32,
    },
    /// Tell the trainer.
    Tell(ToTrainer),
    /// Append to the journal; durable at once unless it is a metric.
    Journal {
        /// Attempt it belongs to: the coming one while none lives.
        attempt: u32,
        /// What.
        event: Event,
    },
    /// Answer a request.
    Answer(u64, Answer),
    /// SIGKILL to the trainer and its group.
    Kill,
    /// End the supervisor with this status.
    Exit(i32),
}

/// Longest time between two looks at the clock; a longer gap means that this process itself was asleep.
const BEAT: Duration = Duration::from_secs(5);

/// What the user wants of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Run,
    Pause,
    Stop,
}

#[derive(Debug)]
enum Stage {
    Queued,
    BackOff { until: Now },
    Spawning,
    Alive(Trainer),
    Ended,
}

/// How long silence is all right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Normal,
    Long,
    Paused,
}

/// Why a trainer was killed.
#[derive(Clone, Debug)]
enum Cause {
    Hung { silent: Duration },
    LinkClosed,
    StopOverdue,
    SecondSignal,
    Breach(Problem),
}

/// What a trainer said before it left.
#[derive(Clone, Debug)]
enum LastWords {
    End(Event),
    Leaving(u64),
    Broken(Problem),
}

#[derive(Debug)]
struct Trainer {
    heard: Now,
    patience: Patience,
    /// It said that it is about to make its first step.
    started: bool,
    /// It made one.
    stepped: bool,
    last_words: Option<LastWords>,
    leave_by: Option<Now>,
    stop_by: Option<Now>,
    killed: Option<(Now, Cause)>,
}

/// The state machine.
#[derive(Debug)]
pub struct Core {
    rules: Rules,
    stage: Stage,
    wish: Wish,
    attempt: u32,
    /// Highest step in the journal; progress is a step beyond it.
    newest_step: u64,
    /// Step of the newest checkpoint.
    safe_step: u64,
    restarts: u32,
    longest_step: Duration,
    signals: u32,
    /// Step up to which the living trainer was told that its rows are durable.
    acknowledged: u64,
    journal_down: Option<Problem>,
    looked: Now,
    slept: Duration,
    actions: Vec<Action>,
}

impl Core {
    /// A job that waits for its devices. `attempt` is the number of the first trainer to come; `newest_step` and
    /// `safe_step` are what journal and checkpoints hold from earlier attempts.
    pub fn new(rules: Rules, attempt: u32, newest_step: u64, safe_step: u64) -> Core {
        Core {
            rules,
            stage: Stage::Queued,
            wish: Wish::Run,
            attempt,
            newest_step,
            safe_step,
            restarts: 0,
            longest_step: Duration::ZERO,
            signals: 0,
            acknowledged: 0,
            journal_down: None,
            looked: Duration::ZERO,
            slept: Duration::ZERO,
            actions: Vec::new(),
        }
    }

    /// Takes one input at a time and returns what is to be done.
    pub fn step(&mut self, input: Input, now: Now) -> Vec<Action> {
        let now = self.awake(now);
        if let Stage::Ended = self.stage {
            self.after_the_end(input);
        } else {
            self.take(input, now);
            self.check_time(now);
        }
        std::mem::take(&mut self.actions)
    }

    /// When `Tick` is due, at the latest; `None` after the end.
    pub fn deadline(&self) -> Option<Now> {
        let beat = self.looked + BEAT;
        match &self.stage {
            Stage::Ended => None,
            Stage::BackOff { until } => Some(beat.min(*until + self.slept)),
            Stage::Alive(trainer) => Some(match self.due(trainer) {
                Some((at, _)) => beat.min(at + self.slept),
                None => beat,
            }),
            Stage::Queued | Stage::Spawning => Some(beat),
        }
    }

    /// Time without what this process slept through (suspend, SIGSTOP, a stalled disk): a trainer that was asleep beside
    /// it owes nothing for that time.
    fn awake(&mut self, now: Now) -> Now {
        let gap = now.saturating_sub(self.looked);
        if gap > 2 * BEAT {
            self.slept += gap - BEAT;
        }
        self.looked = self.looked.max(now);
        self.looked - self.slept
    }

    fn take(&mut self, input: Input, now: Now) {
        match input {
            Input::Queued { ticket, devices } => self.journal(Event::Queued { ticket, devices }),
            Input::Acquired => self.spawn(),
            Input::Spawned => self.spawned(now),
            Input::SpawnFailed(problem) => self.died(spawn_problem(problem), now),
            Input::Message(message) => self.message(message, now),
            Input::Breach(problem) => self.kill(Cause::Breach(problem), now),
            Input::LinkClosed => self.link_closed(now),
            Input::Exited(death) => self.exited(death, now),
            Input::Request(id, request) => self.request(id, request, now),
            Input::Terminate => self.terminate(now),
            Input::Durable { attempt, step } => self.durable(attempt, step),
            Input::JournalFailed(problem) => self.journal_failed(problem),
            Input::Tick => {}
            Input::Deaf => self.deaf(now),
        }
    }

    fn after_the_end(&mut self, input: Input) {
        if let Input::Request(id, request) = input {
            self.answer(id, if request == Request::Ping { Ok(()) } else { Err("the job has ended") });
        }
    }

    // ---- time

    fn check_time(&mut self, now: Now) {
        match &self.stage {
            Stage::BackOff { until } if *until <= now => self.spawn(),
            Stage::Alive(trainer) => match self.due(trainer) {
                Some((at, Due::Kill(cause))) if at <= now => self.kill(cause, now),
                Some((at, Due::Stuck)) if at <= now => self.give_up(),
                _ => {}
            },
            _ => {}
        }
    }

    /// The next thing that time alone brings to a living trainer.
    fn due(&self, trainer: &Trainer) -> Option<(Now, Due)> {
        if let Some((at, _)) = &trainer.killed {
            return Some((*at + self.rules.stuck, Due::Stuck));
        }
        let hang = self.silence_allowed(trainer).map(|silent| (trainer.heard + silent, Cause::Hung { silent }));
        let leave = trainer.leave_by.map(|at| (at, Cause::LinkClosed));
        let stop = trainer.stop_by.map(|at| (at, Cause::StopOverdue));
        let first = [hang, leave, stop].into_iter().flatten().min_by_key(|(at, _)| *at);
        first.map(|(at, cause)| (at, Due::Kill(cause)))
    }

    fn deaf(&mut self, now: Now) {
        if let Stage::Alive(trainer) = &mut self.stage {
            trainer.heard = now;
        }
    }

    fn silence_allowed(&self, trainer: &Trainer) -> Option<Duration> {
        match trainer.patience {
            Patience::Paused => None,
            Patience::Long => Some(self.rules.long_phase.max(self.longest_step + self.rules.quiet)),
            Patience::Normal => Some(self.longest_step + self.rules.quiet),
        }
    }

    // ---- the trainer's life

    fn spawn(&mut self) {
        if matches!(self.stage, Stage::Queued | Stage::BackOff { .. }) {
            self.stage = Stage::Spawning;
            self.actions.push(Action::Spawn { attempt: self.attempt });
        }
    }

    fn spawned(&mut self, now: Now) {
        if !matches!(self.stage, Stage::Spawning) {
            return;
        }
        self.acknowledged = 0;
        let stopping = self.wish == Wish::Stop;
        self.stage = Stage::Alive(Trainer {
            heard: now,
            patience: Patience::Long,
            started: false,
            stepped: false,
            last_words: None,
            leave_by: None,
            stop_by: stopping.then(|| now + self.rules.grace()),
            killed: None,
        });
        if self.signals > 1 {
            return self.kill(Cause::SecondSignal, now);
        }
        if stopping {
            self.tell(ToTrainer::Stop);
        } else if self.wish == Wish::Pause || self.journal_down.is_some() {
            self.tell(ToTrainer::Pause);
        }
    }

    fn message(&mut self, message: FromTrainer, now: Now) {
        let leave_by = now + self.rules.leave;
        let Stage::Alive(trainer) = &mut self.stage else { return };
        trainer.heard = now;
        if trainer.last_words.is_some() {
            return;
        }
        match message {
            FromTrainer::Alive { .. } if trainer.patience == Patience::Paused => {}
            FromTrainer::Alive { .. } => trainer.patience = Patience::Long,
            FromTrainer::Leaving { step } => {
                trainer.last_words = Some(LastWords::Leaving(step));
                trainer.leave_by = Some(leave_by);
            }
            FromTrainer::Broken { problem } => {
                trainer.last_words = Some(LastWords::Broken(problem));
                trainer.leave_by = Some(leave_by);
            }
            FromTrainer::Event { event: event @ (Event::Finished { .. } | Event::Failed { .. }) } => {
                // Journaled when the process is gone: who sees the last event finds locks and devices free.
                trainer.last_words = Some(LastWords::End(event));
                trainer.leave_by = Some(leave_by);
            }
            FromTrainer::Event { event } => self.told(event),
        }
    }

    /// An event of the trainer's that is not its last.
    fn told(&mut self, event: Event) {
        match &event {
            Event::Queued { .. }
            | Event::Restarted { .. }
            | Event::Stopping { .. }
            | Event::Stopped { .. }
            | Event::Interrupted { .. } => {
                let what = format!("the trainer reported {}, which only its supervisor may", event_name(&event));
                return self.journal(Event::Warning { step: self.newest_step, problem: Problem::internal(what) });
            }
            Event::Step(step) => self.stepped(step.step, step.step_ms),
            Event::Checkpoint { step, bytes, seconds, .. } => self.saved(*step, *bytes, *seconds),
            Event::Skipped { step, .. } => self.stepped(*step, 0.0),
            Event::Paused { .. } => self.be(Patience::Paused),
            Event::Resumed { .. } => self.be(Patience::Long),
            Event::Started { .. } => self.started(),
            _ => self.be_normal(),
        }
        self.journal(event);
    }

    fn stepped(&mut self, step: u64, step_ms: f64) {
        let Stage::Alive(trainer) = &mut self.stage else { return };
        let was_paused = trainer.patience == Patience::Paused;
        // Before `started` come rows of an earlier attempt that may not have reached the journal: no step was made for
        // them. The first real one is slower than the others and says nothing about them.
        if trainer.stepped {
            let took = Duration::try_from_secs_f64(step_ms / 1e3).unwrap_or_default();
            self.longest_step = self.longest_step.max(took);
        }
        trainer.stepped |= trainer.started;
        if step > self.newest_step {
            self.newest_step = step;
            self.restarts = 0;
        }
        if was_paused {
            self.journal(Event::Resumed { step: step.saturating_sub(1) });
            self.be(Patience::Normal);
        }
        self.be_normal();
    }

    fn started(&mut self) {
        self.be(Patience::Long);
        if let Stage::Alive(trainer) = &mut self.stage {
            trainer.started = true;
        }
    }

    fn saved(&mut self, step: u64, bytes: u64, seconds: f64) {
        self.safe_step = step;
        if seconds > 0.01 && bytes > 0 {
            self.rules.disk_rate = bytes as f64 / seconds;
            self.rules.checkpoint_bytes = self.rules.checkpoint_bytes.max(bytes);
        }
        self.be_normal();
    }

    fn be(&mut self, patience: Patience) {
        if let Stage::Alive(trainer) = &mut self.stage {
            trainer.patience = patience;
        }
    }

    /// Back to the normal limit, unless it waits or its first step is still to come.
    fn be_normal(&mut self) {
        if let Stage::Alive(trainer) = &mut self.stage
            && trainer.patience != Patience::Paused
        {
            trainer.patience = if trainer.stepped { Patience::Normal } else { Patience::Long };
        }
    }

    fn link_closed(&mut self, now: Now) {
        let leave_by = now + self.rules.grace();
        if let Stage::Alive(trainer) = &mut self.stage {
            // Without its link a trainer saves and leaves by itself; it gets the time for that.
            trainer.patience = Patience::Paused;
            trainer.leave_by.get_or_insert(leave_by);
        }
    }

    fn kill(&mut self, cause: Cause, now: Now) {
        if let Stage::Alive(trainer) = &mut self.stage
            && trainer.killed.is_none()
        {
            trainer.killed = Some((now, cause));
            self.actions.push(Action::Kill);
        }
    }

    fn exited(&mut self, death: Death, now: Now) {
        let Stage::Alive(trainer) = &self.stage else { return };
        let (last_words, killed) = (trainer.last_words.clone(), trainer.killed.clone().map(|(_, cause)| cause));
        self.safe_step = death.safe_step;
        match last_words {
            Some(LastWords::End(event)) => self.end(event),
            Some(LastWords::Leaving(step)) if killed.is_none() => {
                self.safe_step = step;
                self.left();
            }
            Some(LastWords::Broken(problem)) => self.died(problem, now),
            _ => self.died(self.death_problem(&death, killed), now),
        }
    }

    /// It saved and left in order: because it was told to, or because someone signalled it.
    fn left(&mut self) {
        match self.wish {
            Wish::Stop => self.end(Event::Stopped { step: self.safe_step }),
            Wish::Run | Wish::Pause => {
                let problem = Problem::new(Code::TrainerDied, "the trainer was asked to end by someone else")
                    .why("it received a signal, saved its state and left")
                    .kept(self.kept())
                    .remedy("resume the job");
                self.end(Event::Interrupted { step: self.safe_step, problem });
            }
        }
    }

    fn died(&mut self, problem: Problem, now: Now) {
        let hopeless = problem.code == Code::ProtocolMismatch;
        match self.wish {
            Wish::Stop => {
                self.journal(Event::Warning { step: self.safe_step, problem });
                self.end(Event::Stopped { step: self.safe_step });
            }
            _ if hopeless || self.restarts >= limits::RESTARTS => self.failed(problem),
            _ => self.restart(problem, now),
        }
    }

    fn restart(&mut self, problem: Problem, now: Now) {
        let waits = &self.rules.back_off;
        let wait = waits.get(self.restarts as usize).or(waits.last()).copied().unwrap_or_default();
        self.restarts += 1;
        self.attempt += 1;
        let remedy = format!("nothing: started again ({} of {})", self.restarts, limits::RESTARTS);
        let why = problem.kept(self.kept()).remedy(remedy);
        self.stage = Stage::BackOff { until: now + wait };
        self.journal(Event::Restarted { step: self.safe_step, why });
    }

    fn failed(&mut self, problem: Problem) {
        let remedy = format!(
            "{} restarts in a row made no new step; read trainer.log in the run folder, then resume the job",
            self.restarts
        );
        let remedy = if problem.remedy.is_empty() { remedy } else { problem.remedy.clone() };
        let problem = problem.kept(self.kept()).remedy(remedy);
        self.end(Event::Failed { step: self.safe_step, problem });
    }

    /// The kernel does not let go of a killed process: no second trainer may be started beside it.
    fn give_up(&mut self) {
        let problem = Problem::new(Code::TrainerHung, "the trainer was killed and does not end")
            .why("it waits inside the kernel, mostly for a device or a disk that does not answer")
            .remedy("look at dmesg; restart the machine if it stays, then resume the job");
        if self.wish == Wish::Stop {
            self.journal(Event::Warning { step: self.safe_step, problem });
            self.end(Event::Stopped { step: self.safe_step });
        } else {
            self.end(Event::Failed { step: self.safe_step, problem: problem.kept(self.kept()) });
        }
    }

    fn end(&mut self, event: Event) {
        let status = match &event {
            Event::Finished { .. } => 0,
            Event::Stopped { .. } => 130,
            _ => 1,
        };
        self.journal(event);
        self.stage = Stage::Ended;
        self.actions.push(Action::Exit(status));
    }

    // ---- what others want

    fn request(&mut self, id: u64, request: Request, now: Now) {
        if self.wish == Wish::Stop && !matches!(request, Request::Ping | Request::Stop) {
            return self.answer(id, Err("the job is stopping"));
        }
        match request {
            Request::Ping => self.answer(id, Ok(())),
            Request::Snapshot => self.snapshot(id),
            Request::Pause => self.pause(id),
            Request::Resume => self.resume(id, now),
            Request::Stop => {
                self.stop(now);
                self.answer(id, Ok(()));
            }
        }
    }

    fn snapshot(&mut self, id: u64) {
        match &self.stage {
            // What a paused trainer has is on disk already.
            Stage::Alive(trainer) if trainer.patience == Patience::Paused => self.answer(id, Ok(())),
            Stage::Alive(_) => {
                self.tell(ToTrainer::Snapshot);
                self.answer(id, Ok(()));
            }
            _ => self.answer(id, Err("the trainer is not running")),
        }
    }

    fn pause(&mut self, id: u64) {
        if let Stage::Queued = self.stage {
            return self.answer(id, Err("the job waits for its devices and has not begun"));
        }
        if self.wish != Wish::Pause {
            self.wish = Wish::Pause;
            self.tell(ToTrainer::Pause);
        }
        self.answer(id, Ok(()));
    }

    fn resume(&mut self, id: u64, now: Now) {
        let waits = matches!(&self.stage, Stage::Alive(trainer) if trainer.patience == Patience::Paused);
        if self.wish != Wish::Pause && !waits {
            return self.answer(id, Err("the job is not paused"));
        }
        self.wish = Wish::Run;
        if self.journal_down.is_none() {
            self.go_on(now);
        }
        self.answer(id, Ok(()));
    }

    fn go_on(&mut self, now: Now) {
        if let Stage::Alive(trainer) = &mut self.stage {
            (trainer.heard, trainer.patience) = (now, Patience::Long);
        }
        self.tell(ToTrainer::Resume);
    }

    fn terminate(&mut self, now: Now) {
        self.signals += 1;
        if self.signals == 1 {
            return self.stop(now);
        }
        self.kill(Cause::SecondSignal, now);
    }

    /// Ends the job in order. Only the first asker counts; a trainer that is not there needs no time.
    fn stop(&mut self, now: Now) {
        if std::mem::replace(&mut self.wish, Wish::Stop) == Wish::Stop {
            return;
        }
        self.journal(Event::Stopping { step: self.newest_step });
        let grace = self.rules.grace();
        match &mut self.stage {
            Stage::Queued | Stage::BackOff { .. } => self.left(),
            Stage::Alive(trainer) => {
                trainer.stop_by = Some(now + grace);
                self.tell(ToTrainer::Stop);
            }
            Stage::Spawning | Stage::Ended => {}
        }
    }

    fn tell(&mut self, command: ToTrainer) {
        if let Stage::Alive(_) = self.stage {
            self.actions.push(Action::Tell(command));
        }
    }

    fn answer(&mut self, id: u64, outcome: Result<(), &str>) {
        let answer = match outcome {
            Ok(()) => Answer::Done,
            Err(why) => Answer::Refused { problem: Problem::new(Code::WrongState, why) },
        };
        self.actions.push(Action::Answer(id, answer));
    }

    // ---- the journal

    fn journal(&mut self, event: Event) {
        self.actions.push(Action::Journal { attempt: self.attempt, event });
    }

    fn durable(&mut self, attempt: u32, step: u64) {
        if attempt == self.attempt && matches!(self.stage, Stage::Alive(_)) {
            let before = std::mem::replace(&mut self.acknowledged, step);
            if step > before {
                self.tell(ToTrainer::Acknowledge { step });
            }
        }
        if let Some(problem) = self.journal_down.take() {
            self.journal(Event::Warning { step: self.newest_step, problem });
            if self.wish == Wish::Run {
                self.go_on(self.looked - self.slept);
            }
        }
    }

    /// Training must not run ahead of a journal that cannot be written: it waits until there is room.
    fn journal_failed(&mut self, problem: Problem) {
        if self.journal_down.replace(problem).is_none() && self.wish == Wish::Run {
            self.tell(ToTrainer::Pause);
        }
    }

    // ---- words

    fn kept(&self) -> String {
        match self.safe_step {
            0 => "no checkpoint had been written yet".to_owned(),
            step => format!("the checkpoint of step {step}"),
        }
    }

    fn death_problem(&self, death: &Death, killed: Option<Cause>) -> Problem {
        let at = match self.newest_step {
            0 => "before its first step".to_owned(),
            step => format!("after step {step}"),
        };
        let problem = match killed {
            Some(Cause::Hung { silent }) => {
                let what = format!("the trainer did not answer for {} s {at} and was killed", silent.as_secs());
                Problem::new(Code::TrainerHung, what)
            }
            Some(Cause::LinkClosed) => {
                let what = format!("the trainer closed its link {at}, did not end and was killed");
                Problem::new(Code::TrainerHung, what)
            }
            Some(Cause::StopOverdue) => {
                let what = format!("the trainer did not stop within {} s and was killed", self.rules.grace().as_secs());
                Problem::new(Code::TrainerHung, what)
            }
            Some(Cause::SecondSignal) => {
                Problem::new(Code::TrainerDied, "the trainer was killed at once because a second signal asked for it")
            }
            Some(Cause::Breach(problem)) => return problem,
            None => died_by_itself(death, &at),
        };
        problem.why(tail_text(&death.tail))
    }
}

/// What time brings.
enum Due {
    Kill(Cause),
    Stuck,
}

fn died_by_itself(death: &Death, at: &str) -> Problem {
    let how = match death.how {
        Exit::Code(0) => "ended without finishing (exit status 0)".to_owned(),
        Exit::Code(code) => format!("ended with exit status {code}"),
        Exit::Signal(signal) => format!("was ended by signal {signal} ({})", signal_name(signal)),
    };
    if death.memory_kill && death.how == Exit::Signal(9) {
        return Problem::new(Code::OutOfMemory, format!("the trainer was killed for lack of memory {at}"));
    }
    Problem::new(Code::TrainerDied, format!("the trainer {how} {at}"))
}

fn tail_text(tail: &[String]) -> String {
    if tail.is_empty() {
        return "it printed nothing".to_owned();
    }
    format!("its last lines were:\n{}", tail.join("\n"))
}

fn spawn_problem(problem: Problem) -> Problem {
    Problem { code: Code::TrainerDied, ..problem }
}

fn event_name(event: &Event) -> String {
    let value = serde_json::to_value(event).unwrap_or_default();
    value.get("event").and_then(|name| name.as_str()).unwrap_or("?").to_owned()
}

/// The usual name of a signal.
pub fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL, an instruction this CPU does not have",
        6 => "SIGABRT",
        7 => "SIGBUS, a mapped file was cut short or its disk failed",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => "see signal(7)",
    }
}

#[cfg(test)]
#[path = "simulation.rs"]
mod simulation;
