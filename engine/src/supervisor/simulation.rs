//! Histories of a supervised job: single ones by hand, then thousands by seed. The simulated trainer may do anything a real
//! one may (crash, hang, ignore, repeat itself); the simulated user and machine too. A failing seed is in the panic message.

use super::*;
use protocol::event::Step;
use protocol::plan::MemoryUsed;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

fn seconds(s: u64) -> Now {
    Duration::from_secs(s)
}

fn step(step: u64, step_ms: f64) -> Event {
    Event::Step(Step {
        step,
        loss: 1.0,
        grad_norm: 1.0,
        learning_rate: 1e-3,
        targets: 1,
        tokens: step,
        epoch: 0.0,
        step_ms,
        tokens_per_second: 1.0,
    })
}

fn said(event: Event) -> Input {
    Input::Message(FromTrainer::Event { event })
}

fn finished(step: u64) -> Event {
    Event::Finished { step, loss: 1.0, memory: MemoryUsed::default() }
}

fn exited(how: Exit, safe_step: u64) -> Input {
    Input::Exited(Death { how, safe_step, tail: vec!["last line".into()], memory_kill: false })
}

/// A job whose trainer is in its third step.
fn running() -> Core {
    let mut core = Core::new(Rules::default(), 1, 0, 0);
    assert_eq!(core.step(Input::Acquired, seconds(0)), [Action::Spawn { attempt: 1 }]);
    assert_eq!(core.step(Input::Spawned, seconds(0)), []);
    core.step(said(Event::Started { step: 0, steps_total: 100 }), seconds(1));
    core.step(said(step(1, 9000.0)), seconds(2));
    core.step(said(step(2, 1000.0)), seconds(3));
    core
}

/// Lets time pass the way a driver does; stops at the first actions.
fn wait(core: &mut Core, from: Now, until: Now) -> (Now, Vec<Action>) {
    let mut now = from;
    while let Some(at) = core.deadline().map(|at| at.max(now)).filter(|at| *at <= until) {
        now = at;
        let actions = core.step(Input::Tick, now);
        if !actions.is_empty() {
            return (now, actions);
        }
    }
    (until, vec![])
}

fn journaled(actions: &[Action]) -> Vec<&Event> {
    actions.iter().filter_map(|a| if let Action::Journal { event, .. } = a { Some(event) } else { None }).collect()
}

#[test]
fn a_finished_job_is_told_when_its_trainer_is_gone() {
    let mut core = running();
    assert_eq!(core.step(said(finished(3)), seconds(4)), []);
    let actions = core.step(exited(Exit::Code(0), 3), seconds(5));
    assert_eq!(actions, [Action::Journal { attempt: 1, event: finished(3) }, Action::Exit(0)]);
    assert_eq!(core.deadline(), None);
}

#[test]
fn a_crash_restarts_at_once_and_three_in_a_row_fail_with_the_signal_and_the_log() {
    let mut core = running();
    let mut now = seconds(4);
    for (restart, pause) in [(1, 0), (2, 1), (3, 4)] {
        let actions = core.step(exited(Exit::Signal(11), 2), now);
        let [Event::Restarted { step: 2, why }] = journaled(&actions)[..] else { panic!("{actions:?}") };
        assert_eq!(why.code, Code::TrainerDied);
        assert!(why.what.contains("SIGSEGV") && why.why.contains("last line"), "{why}");
        let spawn = Action::Spawn { attempt: restart + 1 };
        if pause == 0 {
            assert_eq!(actions.last(), Some(&spawn));
        } else {
            assert_eq!(wait(&mut core, now, now + seconds(60)), (now + seconds(pause), vec![spawn]));
        }
        now += seconds(pause);
        core.step(Input::Spawned, now);
    }
    let actions = core.step(exited(Exit::Signal(11), 2), now);
    assert!(matches!(journaled(&actions)[..], [Event::Failed { step: 2, .. }]), "{actions:?}");
    assert_eq!(actions.last(), Some(&Action::Exit(1)));
}

#[test]
fn progress_makes_earlier_restarts_forgotten() {
    let mut core = running();
    for round in 0..10 {
        let now = seconds(100 * round + 4);
        let actions = core.step(exited(Exit::Code(101), 2), now);
        assert!(matches!(actions.last(), Some(Action::Spawn { .. })), "{actions:?}");
        core.step(Input::Spawned, now);
        core.step(said(Event::Started { step: 2, steps_total: 100 }), now);
        core.step(said(step(3 + round, 1000.0)), now);
    }
}

#[test]
fn a_trainer_that_says_failed_is_not_started_again() {
    let mut core = running();
    let failed = Event::Failed { step: 2, problem: Problem::new(Code::ModelChanged, "the base changed") };
    core.step(said(failed.clone()), seconds(4));
    let actions = core.step(exited(Exit::Code(3), 2), seconds(4));
    assert_eq!(actions, [Action::Journal { attempt: 1, event: failed }, Action::Exit(1)]);
}

#[test]
fn a_silent_trainer_is_killed_a_minute_after_its_longest_normal_step() {
    let mut core = running();
    core.step(said(step(3, 5000.0)), seconds(10));
    assert_eq!(wait(&mut core, seconds(10), seconds(1000)), (seconds(10 + 5 + 60), vec![Action::Kill]));
    let actions = core.step(exited(Exit::Signal(9), 2), seconds(76));
    let [Event::Restarted { why, .. }] = journaled(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(why.code, Code::TrainerHung);
}

#[test]
fn a_slow_evaluation_or_first_step_is_no_hang() {
    let mut core = running();
    core.step(Input::Message(FromTrainer::Alive { phase: "evaluating".into() }), seconds(10));
    assert_eq!(wait(&mut core, seconds(10), seconds(600)).1, []);
    let mut core = Core::new(Rules::default(), 1, 0, 0);
    core.step(Input::Acquired, seconds(0));
    core.step(Input::Spawned, seconds(0));
    assert_eq!(wait(&mut core, seconds(0), seconds(590)).1, []);
    assert_eq!(wait(&mut core, seconds(590), seconds(700)), (seconds(600), vec![Action::Kill]));
}

#[test]
fn a_trainer_that_nobody_listens_to_is_not_hung() {
    let mut core = running();
    for late in 1..100 {
        assert_eq!(core.step(Input::Deaf, seconds(3 + 5 * late)), []);
    }
}

#[test]
fn a_paused_job_is_never_hung_and_goes_on_when_told() {
    let mut core = running();
    let actions = core.step(Input::Request(1, Request::Pause), seconds(4));
    assert_eq!(actions, [Action::Tell(ToTrainer::Pause), Action::Answer(1, Answer::Done)]);
    core.step(said(Event::Paused { step: 2 }), seconds(5));
    assert_eq!(wait(&mut core, seconds(5), seconds(100_000)).1, []);
    let actions = core.step(Input::Request(2, Request::Resume), seconds(100_000));
    assert_eq!(actions, [Action::Tell(ToTrainer::Resume), Action::Answer(2, Answer::Done)]);
    let refused = core.step(Input::Request(3, Request::Resume), seconds(100_001));
    assert!(matches!(&refused[..], [Action::Answer(3, Answer::Refused { .. })]), "{refused:?}");
}

#[test]
fn a_crash_while_paused_comes_back_paused() {
    let mut core = running();
    core.step(Input::Request(1, Request::Pause), seconds(4));
    core.step(said(Event::Paused { step: 2 }), seconds(5));
    core.step(exited(Exit::Signal(9), 2), seconds(6));
    assert_eq!(core.step(Input::Spawned, seconds(6)), [Action::Tell(ToTrainer::Pause)]);
}

#[test]
fn a_machine_that_slept_does_not_find_its_trainer_hung() {
    let mut core = running();
    let (woke, actions) = (seconds(3 + 8 * 3600), core.step(Input::Tick, seconds(3 + 8 * 3600)));
    assert_eq!(actions, []);
    assert_eq!(wait(&mut core, woke, woke + seconds(50)).1, []);
    assert_eq!(wait(&mut core, woke + seconds(50), woke + seconds(200)).1, [Action::Kill]);
}

#[test]
fn a_stop_that_is_not_obeyed_ends_after_the_time_a_checkpoint_takes() {
    let rules = Rules { checkpoint_bytes: 1_000_000_000, disk_rate: 100e6, ..Rules::default() };
    let mut core = Core::new(rules, 1, 0, 0);
    core.step(Input::Acquired, seconds(0));
    core.step(Input::Spawned, seconds(0));
    let actions = core.step(Input::Request(1, Request::Stop), seconds(1));
    assert_eq!(actions[1..], [Action::Tell(ToTrainer::Stop), Action::Answer(1, Answer::Done)]);
    assert_eq!(wait(&mut core, seconds(1), seconds(1000)), (seconds(1 + 30 + 15), vec![Action::Kill]));
    let actions = core.step(exited(Exit::Signal(9), 2), seconds(47));
    let [Event::Warning { .. }, Event::Stopped { step: 2 }] = journaled(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(actions.last(), Some(&Action::Exit(130)));
}

#[test]
fn the_first_sigterm_stops_in_order_and_the_second_at_once() {
    let mut core = running();
    let actions = core.step(Input::Terminate, seconds(4));
    assert!(matches!(journaled(&actions)[..], [Event::Stopping { step: 2 }]), "{actions:?}");
    assert_eq!(actions.last(), Some(&Action::Tell(ToTrainer::Stop)));
    assert_eq!(core.step(Input::Terminate, seconds(5)), [Action::Kill]);
    let actions = core.step(exited(Exit::Signal(9), 1), seconds(5));
    assert!(matches!(journaled(&actions)[..], [Event::Warning { .. }, Event::Stopped { step: 1 }]), "{actions:?}");
}

#[test]
fn stop_while_queued_needs_no_trainer() {
    let mut core = Core::new(Rules::default(), 1, 0, 0);
    core.step(Input::Queued { ticket: 7, devices: vec!["cpu".into()] }, seconds(0));
    let actions = core.step(Input::Request(1, Request::Stop), seconds(9));
    assert!(matches!(journaled(&actions)[..], [Event::Stopping { .. }, Event::Stopped { step: 0 }]), "{actions:?}");
    assert_eq!(actions[2..], [Action::Exit(130), Action::Answer(1, Answer::Done)]);
}

#[test]
fn steps_are_acknowledged_only_when_the_journal_is_durable() {
    let mut core = running();
    let durable = |attempt, step| Input::Durable { attempt, step };
    assert_eq!(core.step(durable(1, 2), seconds(4)), [Action::Tell(ToTrainer::Acknowledge { step: 2 })]);
    assert_eq!(core.step(durable(1, 2), seconds(5)), []);
    core.step(exited(Exit::Signal(9), 0), seconds(5));
    core.step(Input::Spawned, seconds(5));
    assert_eq!(core.step(durable(1, 3), seconds(6)), [], "a row of the dead trainer means nothing to the new one");
    assert_eq!(core.step(durable(2, 1), seconds(6)), [Action::Tell(ToTrainer::Acknowledge { step: 1 })]);
}

#[test]
fn training_waits_for_a_journal_that_cannot_be_written() {
    let mut core = running();
    let full = Problem::new(Code::DiskFull, "no room");
    assert_eq!(core.step(Input::JournalFailed(full.clone()), seconds(4)), [Action::Tell(ToTrainer::Pause)]);
    assert_eq!(core.step(Input::JournalFailed(full.clone()), seconds(5)), []);
    core.step(said(Event::Paused { step: 2 }), seconds(5));
    let actions = core.step(Input::Durable { attempt: 1, step: 0 }, seconds(90));
    assert!(matches!(journaled(&actions)[..], [Event::Warning { .. }]), "{actions:?}");
    assert_eq!(actions.last(), Some(&Action::Tell(ToTrainer::Resume)));
}

#[test]
fn a_killed_process_that_stays_gets_no_second_one_beside_it() {
    let mut core = running();
    assert_eq!(wait(&mut core, seconds(3), seconds(1000)).1, [Action::Kill]);
    let (_, actions) = wait(&mut core, seconds(64), seconds(1000));
    assert!(matches!(journaled(&actions)[..], [Event::Failed { .. }]), "{actions:?}");
    assert_eq!(actions.last(), Some(&Action::Exit(1)));
}

#[test]
fn another_protocol_is_not_tried_again() {
    let mut core = running();
    let breach = Problem::new(Code::ProtocolMismatch, "the trainer speaks protocol 2");
    assert_eq!(core.step(Input::Breach(breach), seconds(4)), [Action::Kill]);
    let actions = core.step(exited(Exit::Signal(9), 0), seconds(4));
    assert!(matches!(journaled(&actions)[..], [Event::Failed { .. }]), "{actions:?}");
}

#[test]
fn thousands_of_random_histories_keep_every_promise() {
    let mut ends = HashSet::new();
    for seed in 0..10_000 {
        let (trace, end) = History::new(seed).play();
        ends.insert(end);
        if let Some(trace) = trace {
            assert_eq!(Some(trace), History::new(seed).play().0, "seed {seed} gives two different histories");
        }
    }
    assert_eq!(ends.len(), 4, "the dice reach only these ends: {ends:?}");
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

/// The simulated process.
#[derive(Default)]
struct FakeTrainer {
    step: u64,
    started: bool,
    paused: bool,
    stopping: bool,
    killed: bool,
    link_closed: bool,
    gone_silent: bool,
    last_words: bool,
}

/// One random history and what was seen in it.
struct History {
    seed: u64,
    dice: Dice,
    core: Core,
    now: Now,
    trainer: Option<FakeTrainer>,
    spawning: bool,
    acquired: bool,
    checkpoint: u64,
    attempts: Vec<u32>,
    asked: u64,
    unanswered: HashSet<u64>,
    stop_asked: bool,
    finals: Vec<Event>,
    exit: Option<i32>,
    acknowledged: u64,
    /// Attempt and step of the newest row: journaled, durable.
    row: (u32, u64),
    durable: (u32, u64),
    /// Hash of all that was done; only the first hundred are played twice and need one.
    trace: Option<DefaultHasher>,
}

const STEPS: u64 = 30;

impl History {
    fn new(seed: u64) -> History {
        History {
            seed,
            dice: Dice(seed),
            core: Core::new(Rules::default(), 1, 0, 0),
            now: Duration::ZERO,
            trainer: None,
            spawning: false,
            acquired: false,
            checkpoint: 0,
            attempts: vec![],
            asked: 0,
            unanswered: HashSet::new(),
            stop_asked: false,
            finals: vec![],
            exit: None,
            acknowledged: 0,
            row: (0, 0),
            durable: (0, 0),
            trace: (seed < 100).then(DefaultHasher::new),
        }
    }

    /// Plays until the supervisor exits, checks the end; the hash of everything that was done and the name of the end.
    fn play(mut self) -> (Option<u64>, String) {
        for turn in 0.. {
            if self.exit.is_some() {
                break;
            }
            assert!(turn < 20_000, "seed {} never ends", self.seed);
            if turn == 1500 || turn == 1600 {
                self.put(Input::Terminate);
            }
            self.turn();
        }
        self.check_end();
        (self.trace.map(|trace| trace.finish()), event_name(&self.finals[0]))
    }

    fn turn(&mut self) {
        match self.dice.roll(100) {
            0..35 => self.trainer_acts(),
            35..60 => self.time_passes(),
            60..65 => self.ask(),
            65..75 => {
                let (attempt, step) = self.row;
                self.durable = self.row;
                self.put(Input::Durable { attempt, step });
            }
            75..77 => self.put(Input::JournalFailed(Problem::new(Code::DiskFull, "no room"))),
            77..90 => self.machine_acts(),
            90..91 if self.dice.roll(20) == 0 => self.put(Input::Terminate),
            _ => {}
        }
    }

    fn machine_acts(&mut self) {
        if !self.acquired && self.dice.roll(3) == 0 {
            self.acquired = true;
            return self.put(Input::Acquired);
        }
        if !self.acquired {
            return self.put(Input::Queued { ticket: 1, devices: vec!["cpu".into()] });
        }
        if self.spawning {
            self.spawning = false;
            if self.dice.roll(10) == 0 {
                return self.put(Input::SpawnFailed(Problem::new(Code::Internal, "no more processes")));
            }
            self.trainer = Some(FakeTrainer { step: self.checkpoint, ..FakeTrainer::default() });
            return self.put(Input::Spawned);
        }
        match self.dice.roll(12) {
            0 => self.dies(Exit::Signal(9)),
            1 => self.dies(Exit::Code(101)),
            _ if self.trainer.as_ref().is_some_and(|t| t.killed) => self.dies(Exit::Signal(9)),
            _ => {}
        }
    }

    fn dies(&mut self, how: Exit) {
        if self.trainer.take().is_some() {
            let safe_step = self.checkpoint;
            self.put(Input::Exited(Death { how, safe_step, tail: vec![], memory_kill: false }));
        }
    }

    fn trainer_acts(&mut self) {
        let roll = self.dice.roll(60);
        let Some(trainer) = &mut self.trainer else { return };
        if trainer.killed || trainer.gone_silent || trainer.link_closed {
            return;
        }
        if trainer.last_words {
            return self.dies(Exit::Code(0));
        }
        match roll {
            0 => trainer.gone_silent = true,
            1 => {
                trainer.link_closed = true;
                self.put(Input::LinkClosed);
            }
            2 => {
                let code = if self.dice.roll(2) == 0 { Code::Internal } else { Code::ProtocolMismatch };
                self.put(Input::Breach(Problem::new(code, "not a message")));
            }
            3 => self.put(said(Event::Stopping { step: 1 })),
            4 => self.put(Input::Message(FromTrainer::Alive { phase: "saving".into() })),
            _ if !trainer.started => {
                trainer.started = true;
                let step = trainer.step;
                self.put(said(Event::Started { step, steps_total: STEPS }));
            }
            _ if trainer.stopping || roll == 6 => {
                trainer.last_words = true;
                self.checkpoint = trainer.step;
                let step = trainer.step;
                self.put(Input::Message(FromTrainer::Leaving { step }));
            }
            _ if trainer.paused => {}
            _ if trainer.step == STEPS => {
                trainer.last_words = true;
                self.put(said(finished(STEPS)));
            }
            5 => {
                self.checkpoint = trainer.step;
                let path = format!("step-{:08}", trainer.step);
                self.put(said(Event::Checkpoint { step: self.checkpoint, path, bytes: 1 << 20, seconds: 0.1 }));
            }
            _ => {
                trainer.step += 1;
                let step_now = trainer.step;
                self.put(said(step(step_now, 100.0)));
            }
        }
    }

    fn time_passes(&mut self) {
        let most = if self.dice.roll(50) == 0 { 40_000_000 } else { 2_000 };
        let later = self.now + Duration::from_millis(self.dice.roll(most));
        self.now = match (self.core.deadline(), self.dice.roll(3)) {
            (Some(at), 0 | 1) => at.max(self.now),
            _ => later,
        };
        self.put(Input::Tick);
    }

    fn ask(&mut self) {
        let request = match self.dice.roll(40) {
            0 => Request::Stop,
            1..8 => Request::Pause,
            8..25 => Request::Resume,
            25..32 => Request::Snapshot,
            _ => Request::Ping,
        };
        self.asked += 1;
        self.unanswered.insert(self.asked);
        self.stop_asked |= request == Request::Stop;
        self.put(Input::Request(self.asked, request));
    }

    fn put(&mut self, input: Input) {
        if self.exit.is_some() {
            return;
        }
        self.stop_asked |= matches!(input, Input::Terminate);
        let actions = self.core.step(input, self.now);
        if let Some(trace) = &mut self.trace {
            format!("{:?} {actions:?}", self.now).hash(trace);
        }
        let seed = self.seed;
        for action in actions {
            match action {
                Action::Spawn { attempt } => {
                    assert!(self.trainer.is_none() && !self.spawning, "seed {seed}: two trainers at once");
                    assert!(!self.stop_asked, "seed {seed}: a start after a stop");
                    assert_eq!(attempt as usize, self.attempts.len() + 1, "seed {seed}: attempts");
                    (self.spawning, self.acknowledged) = (true, 0);
                    self.attempts.push(attempt);
                }
                Action::Tell(command) => self.obey(command),
                Action::Journal { attempt, event } => {
                    if let Event::Step(row) = &event {
                        self.row = (attempt, row.step);
                    }
                    assert!(self.exit.is_none() && self.finals.is_empty(), "seed {seed}: {event:?} after the end");
                    if event.ends() {
                        self.finals.push(event);
                    }
                }
                Action::Answer(id, _) => {
                    assert!(self.unanswered.remove(&id), "seed {seed}: request {id} answered twice")
                }
                Action::Kill => match &mut self.trainer {
                    Some(trainer) => trainer.killed = true,
                    None => panic!("seed {seed}: nobody to kill"),
                },
                Action::Exit(status) => self.exit = Some(status),
            }
        }
        assert!(self.unanswered.is_empty(), "seed {seed}: requests {:?} got no answer", self.unanswered);
    }

    fn obey(&mut self, command: ToTrainer) {
        let Some(trainer) = &mut self.trainer else { panic!("seed {}: nobody to tell {command:?}", self.seed) };
        match command {
            ToTrainer::Stop => trainer.stopping = true,
            ToTrainer::Pause => trainer.paused = true,
            ToTrainer::Resume => trainer.paused = false,
            ToTrainer::Acknowledge { step } => {
                assert!(step > self.acknowledged, "seed {}: acknowledged backwards", self.seed);
                let durable = (self.attempts.len() as u32, step) == self.durable;
                assert!(durable, "seed {}: acknowledged before it was durable", self.seed);
                self.acknowledged = step;
            }
            ToTrainer::Snapshot => {}
        }
    }

    fn check_end(&self) {
        let seed = self.seed;
        assert_eq!(self.finals.len(), 1, "seed {seed}: {:?}", self.finals);
        let status = match self.finals[0] {
            Event::Finished { .. } => 0,
            Event::Stopped { .. } => 130,
            _ => 1,
        };
        assert_eq!(self.exit, Some(status), "seed {seed}");
        if matches!(self.finals[0], Event::Stopped { .. }) {
            assert!(self.stop_asked, "seed {seed}: stopped and nobody asked");
        }
    }
}
