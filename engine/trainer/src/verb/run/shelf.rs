//! When the state is saved, where, and which older checkpoints go.
//!
//! Not here: what is in a checkpoint (`checkpoint.rs`), how a write survives a power cut (`store`).

use crate::rank::Rank;
use protocol::event::Step;
use protocol::job::Cadence;
use protocol::plan::Plan;
use protocol::{Code, Event, Outcome, Problem};
use std::time::Duration;
use store::checkpoint::{self, Restore, Writer};
use store::disk::Disk;
use store::run::RunFolder;

/// Bytes a second to disk, assumed until a save has shown it: a slow laptop disk does that.
const DISK_RATE: f64 = 100e6;
/// Time to leave in, besides writing a checkpoint.
const LEAVE: Duration = Duration::from_secs(30);

/// The run's checkpoints.
pub struct Shelf<'a> {
    disk: &'a dyn Disk,
    run: &'a RunFolder,
    plan: &'a Plan,
    /// Step of the newest durable checkpoint.
    saved: Option<u64>,
    /// When a save was last tried, or the attempt began: a failed one waits for the next cadence like any other.
    tried_at: Duration,
    rate: f64,
    bytes: u64,
    /// (loss, step) of the best evaluations, the best first; at most `keep_best`.
    best: Vec<(f64, u64)>,
    told: Vec<Problem>,
}

/// A durable checkpoint and what the user should know besides.
pub struct Saved {
    /// The event.
    pub event: Event,
    /// What went wrong in removing older ones.
    pub warnings: Vec<Problem>,
}

impl<'a> Shelf<'a> {
    /// The shelf of a run that was restored, or begins.
    pub fn new(
        disk: &'a dyn Disk,
        run: &'a RunFolder,
        plan: &'a Plan,
        restored: Option<&Restore>,
        best: Vec<(f64, u64)>,
        now: Duration,
    ) -> Shelf<'a> {
        let (saved, bytes) = (restored.map(|restore| restore.step), plan.memory.checkpoint_bytes);
        let mut shelf =
            Shelf { disk, run, plan, saved, tried_at: now, rate: DISK_RATE, bytes, best: Vec::new(), told: Vec::new() };
        best.into_iter().for_each(|(loss, step)| _ = shelf.evaluated(step, loss));
        shelf
    }

    /// Step of the newest durable checkpoint; 0 = none.
    pub fn safe_step(&self) -> u64 {
        self.saved.unwrap_or(0)
    }

    /// True when the state of `step` is durable.
    pub fn holds(&self, step: u64) -> bool {
        self.saved == Some(step)
    }

    /// True when the cadence asks for a save after `step`.
    pub fn is_due(&self, step: u64, now: Duration) -> bool {
        match self.plan.snapshot.persist_every {
            Cadence::Steps(0) => false,
            Cadence::Steps(n) => step.is_multiple_of(n),
            Cadence::Seconds(seconds) => now.saturating_sub(self.tried_at).as_secs_f64() >= seconds,
        }
    }

    /// How long a process whose supervisor is gone may take to save and leave: 30 s + 1.5 × bytes / disk rate.
    pub fn patience(&self) -> Duration {
        LEAVE + Duration::try_from_secs_f64(1.5 * self.bytes as f64 / self.rate).unwrap_or(Duration::from_secs(86_400))
    }

    /// Remembers an evaluation; true where it is among the best that are kept.
    pub fn evaluated(&mut self, step: u64, loss: f64) -> bool {
        self.best.retain(|(_, at)| *at != step);
        self.best.push((loss, step));
        self.best.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.best.truncate(self.plan.snapshot.keep_best as usize);
        self.best.iter().any(|(_, at)| *at == step)
    }

    /// Saves the state, then removes what is no longer kept.
    /// Errors: `DiskFull`, `DiskFailed`, `NotFinite`; older checkpoints are untouched.
    pub fn save(&mut self, rank: &Rank, unjournaled: &[Step], clock: &dyn Fn() -> Duration) -> Outcome<Saved> {
        let (step, begin) = (rank.progress().step, clock());
        self.tried_at = begin;
        if let Some(tensor) = rank.model.first_not_finite() {
            return Err(Problem::new(Code::NotFinite, "a state that is not finite is not saved").tensor(tensor));
        }
        let writer = Writer::begin(self.disk, &self.run.checkpoints(), step, self.run.id())?;
        let bytes = rank.save(writer, unjournaled)?.bytes();
        let seconds = clock().saturating_sub(begin).as_secs_f64();
        self.saved = Some(step);
        self.bytes = bytes;
        self.rate = bytes as f64 / seconds.max(1e-3);
        let event = Event::Checkpoint { step, path: checkpoint::folder_name(step), bytes, seconds };
        Ok(Saved { event, warnings: self.retain() })
    }

    /// Removes old checkpoints. A problem that repeats at every save is told once.
    fn retain(&mut self) -> Vec<Problem> {
        let snapshot = &self.plan.snapshot;
        let best: Vec<u64> = self.best.iter().map(|(_, step)| *step).collect();
        let problems = match self.run.labels() {
            Ok(labels) => {
                let checkpoints = self.run.checkpoints();
                checkpoint::retain(self.disk, &checkpoints, self.run.id(), snapshot.keep, &best, &labels.pins).problems
            }
            // Pins cannot be read: nothing is removed, one of them might be pinned.
            Err(problem) => vec![problem],
        };
        let new: Vec<Problem> = problems.iter().filter(|p| !self.told.contains(p)).cloned().collect();
        self.told = problems;
        new
    }
}
