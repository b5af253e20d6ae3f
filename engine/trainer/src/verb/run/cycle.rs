//! The loop of a run: obey, step, evaluate, save; until it is finished, told to stop, or left alone.

use super::shelf::{Saved, Shelf};
use crate::batch::RowSource;
use crate::link::{Heard, Link};
use crate::process::host_bytes_peak;
use crate::ranks::Ranks;
use crate::step::StepOutcome;
use protocol::event::Step;
use protocol::link::ToTrainer;
use protocol::plan::{MemoryUsed, Plan};
use protocol::{Code, Event, Outcome, Problem, limits};
use std::collections::VecDeque;
use std::time::Duration;

/// Time between two signs of life in a long phase: far below any limit on silence, far above what a message costs.
const ALIVE_EVERY: Duration = Duration::from_secs(2);
/// Time between two lines of the log while all is well.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// How a run ended in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All steps are done.
    Finished,
    /// It was told to stop, and saved.
    Left,
    /// Its supervisor is gone; it saved.
    Orphaned,
}

/// What a run works with.
pub struct Cycle<'a> {
    plan: &'a Plan,
    ranks: Ranks,
    train: &'a dyn RowSource,
    evaluation: &'a dyn RowSource,
    link: &'a Link,
    shelf: Shelf<'a>,
    clock: &'a dyn Fn() -> Duration,
    /// Steps that the journal may not have, oldest first, and always the newest step: a run restored at its very end tells
    /// that one's loss. At most `limits::UNACKNOWLEDGED_STEPS`: beyond, the loop waits for the journal.
    unjournaled: VecDeque<Step>,
    /// A checkpoint was asked for and is not yet made.
    snapshot_wanted: bool,
    logged_at: Option<Duration>,
}

impl<'a> Cycle<'a> {
    /// A run about to make its next step. `unjournaled` are steps of an earlier attempt, to be told again first.
    #[expect(clippy::too_many_arguments, reason = "each is one collaborator; a struct would only name them twice")]
    pub fn new(
        plan: &'a Plan,
        ranks: Ranks,
        train: &'a dyn RowSource,
        evaluation: &'a dyn RowSource,
        link: &'a Link,
        shelf: Shelf<'a>,
        clock: &'a dyn Fn() -> Duration,
        unjournaled: Vec<Step>,
    ) -> Cycle<'a> {
        link.set_patience(shelf.patience());
        Cycle {
            plan,
            ranks,
            train,
            evaluation,
            link,
            shelf,
            clock,
            unjournaled: unjournaled.into(),
            snapshot_wanted: false,
            logged_at: None,
        }
    }

    /// Runs to an end. Errors are those that end the job: `NotFinite`, `DataChanged`, a last save that failed.
    pub fn run(&mut self, warnings: Vec<Problem>) -> Outcome<End> {
        self.unjournaled.iter().for_each(|step| self.link.event(Event::Step(step.clone())));
        self.warn(warnings);
        self.link.event(Event::Started { step: self.done(), steps_total: self.plan.run.steps });
        self.link.alive("first step");
        loop {
            if let Some(end) = self.obey()? {
                return Ok(end);
            }
            if self.ranks.first().is_finished() {
                return self.finish();
            }
            self.step()?;
            self.evaluate()?;
            self.save_when_due();
        }
    }

    /// Step of the newest durable checkpoint; 0 = none.
    pub fn safe_step(&self) -> u64 {
        self.shelf.safe_step()
    }

    fn done(&self) -> u64 {
        self.ranks.first().progress().step
    }

    // ---- commands

    /// Takes every command that waits, and waits itself where the journal is too far behind.
    fn obey(&mut self) -> Outcome<Option<End>> {
        loop {
            self.forget_journaled();
            let heard = match self.unjournaled.len() < limits::UNACKNOWLEDGED_STEPS {
                true => self.link.poll(),
                false => Some(self.link.wait_until(self.unjournaled.front().map_or(0, |step| step.step))),
            };
            let end = match heard {
                None => return Ok(None),
                Some(Heard::Acknowledged(_)) => None,
                Some(Heard::Gone(why)) => Some(self.orphaned(&why)?),
                Some(Heard::Command(ToTrainer::Snapshot)) => {
                    self.snapshot_wanted = true;
                    None
                }
                Some(Heard::Command(ToTrainer::Pause)) => self.pause()?,
                Some(Heard::Command(ToTrainer::Stop)) => Some(self.leave()?),
                Some(Heard::Command(ToTrainer::Resume | ToTrainer::Acknowledge { .. })) => None,
            };
            if end.is_some() {
                return Ok(end);
            }
        }
    }

    fn forget_journaled(&mut self) {
        let journaled = self.link.acknowledged();
        while self.unjournaled.len() > 1 && self.unjournaled.front().is_some_and(|step| step.step <= journaled) {
            self.unjournaled.pop_front();
        }
    }

    /// Saves and waits for a command. Where the disk does not take the state, it stays in memory and the user is told:
    /// waiting loses nothing, ending would.
    fn pause(&mut self) -> Outcome<Option<End>> {
        if let Err(problem) = self.save() {
            let kept =
                format!("the state of step {}, in memory; on disk that of step {}", self.done(), self.safe_step());
            self.warn(vec![problem.kept(kept)]);
        }
        eprintln!("step {}: paused", self.done());
        self.link.event(Event::Paused { step: self.done() });
        loop {
            match self.link.wait() {
                Heard::Command(ToTrainer::Resume) => break,
                Heard::Command(ToTrainer::Stop) => return self.leave().map(Some),
                Heard::Gone(why) => return self.orphaned(&why).map(Some),
                Heard::Command(_) | Heard::Acknowledged(_) => {}
            }
        }
        eprintln!("step {}: resumed", self.done());
        self.link.event(Event::Resumed { step: self.done() });
        Ok(None)
    }

    fn leave(&mut self) -> Outcome<End> {
        self.save()?;
        eprintln!("step {}: stopped, saved", self.done());
        self.link.leaving(self.done());
        Ok(End::Left)
    }

    fn orphaned(&mut self, why: &Problem) -> Outcome<End> {
        eprintln!("step {}: {why}; saving and leaving", self.done());
        self.save()?;
        Ok(End::Orphaned)
    }

    // ---- work

    fn step(&mut self) -> Outcome<()> {
        let begin = (self.clock)();
        let outcome = self.ranks.step(self.train)?;
        match outcome {
            StepOutcome::Done(done) => {
                let step = done.event(((self.clock)() - begin).as_secs_f64());
                self.log(&step);
                self.unjournaled.push_back(step.clone());
                self.link.event(Event::Step(step));
            }
            StepOutcome::Skipped { step, problem } => {
                eprintln!("step {step}: left out: {problem}");
                self.link.event(Event::Skipped { step, problem });
            }
        }
        Ok(())
    }

    fn log(&mut self, step: &Step) {
        let now = (self.clock)();
        if self.logged_at.is_none_or(|at| now - at >= LOG_EVERY) {
            self.logged_at = Some(now);
            eprintln!("step {}: loss {:.4}, {:.0} tokens/s", step.step, step.loss, step.tokens_per_second);
        }
    }

    /// Evaluates where it is due, and saves a state that is among the best.
    fn evaluate(&mut self) -> Outcome<()> {
        let (every, step) = (self.plan.run.evaluate_every, self.done());
        if every == 0
            || self.evaluation.rows() == 0
            || !(step.is_multiple_of(every) || self.ranks.first().is_finished())
        {
            return Ok(());
        }
        let (link, clock) = (self.link, self.clock);
        link.alive("evaluation");
        let mut said = clock();
        let evaluation = self.ranks.evaluate(self.evaluation, &mut |_rows| {
            if clock() - said >= ALIVE_EVERY {
                said = clock();
                link.alive("evaluation");
            }
        })?;
        if !evaluation.loss.is_finite() {
            let what = format!("the evaluation after step {step} is not finite");
            self.warn(vec![Problem::new(Code::NotFinite, what).why("a loss over the evaluation rows is no number")]);
            return Ok(());
        }
        eprintln!("step {step}: evaluation loss {:.4} over {} tokens", evaluation.loss, evaluation.targets);
        let (loss, perplexity, tokens) = (evaluation.loss, evaluation.perplexity, evaluation.targets);
        self.link.event(Event::Evaluation { step, loss, perplexity, tokens });
        if self.shelf.evaluated(step, loss) {
            self.save_or_warn();
        }
        Ok(())
    }

    // ---- saving

    fn save_when_due(&mut self) {
        let due = self.snapshot_wanted || self.shelf.is_due(self.done(), (self.clock)());
        // The last state is saved by `finish`, where a failure is not passed over.
        if due && !self.ranks.first().is_finished() {
            self.save_or_warn();
        }
    }

    /// A save that may fail: training goes on and the next cadence tries again.
    fn save_or_warn(&mut self) {
        if let Err(problem) = self.save() {
            let kept = match self.safe_step() {
                0 => "training goes on; nothing is on disk yet".to_owned(),
                step => format!("training goes on; the checkpoint of step {step} is untouched"),
            };
            self.warn(vec![problem.kept(kept)]);
        }
        self.snapshot_wanted = false;
    }

    /// Makes the state durable, unless it is.
    fn save(&mut self) -> Outcome<()> {
        if self.shelf.holds(self.done()) {
            return Ok(());
        }
        self.link.alive("saving");
        self.forget_journaled();
        let Saved { event, warnings } =
            self.shelf.save(self.ranks.first(), self.unjournaled.make_contiguous(), self.clock)?;
        self.link.set_patience(self.shelf.patience());
        eprintln!("step {}: saved", self.done());
        self.link.event(event);
        self.warn(warnings);
        Ok(())
    }

    fn finish(&mut self) -> Outcome<End> {
        self.save()?;
        let loss = self.unjournaled.back().map(|step| step.loss).ok_or_else(|| {
            Problem::new(Code::NotFinite, "no step of this run moved the weights")
                .remedy("look at the skipped steps of the journal")
        })?;
        let memory = MemoryUsed { devices: self.ranks.peaks(), host_bytes_peak: host_bytes_peak() };
        eprintln!("step {}: finished, loss {loss:.4}", self.done());
        self.link.event(Event::Finished { step: self.done(), loss, memory });
        Ok(End::Finished)
    }

    fn warn(&mut self, problems: Vec<Problem>) {
        for problem in problems {
            eprintln!("step {}: {problem}", self.done());
            self.link.event(Event::Warning { step: self.done(), problem });
        }
    }
}
