//! `run`: one attempt of a job, from opening its folder to its last checkpoint. Speaks over fd 3 (`link`), never over
//! standard output.
//!
//! Read `cycle.rs` for the loop of steps, commands and cadences, `open.rs` for what is checked before the first step,
//! `shelf.rs` for saving. Not here: the arithmetic (`step.rs`), the restart policy and the journal (the supervisor).

mod cycle;
mod open;
mod shelf;
#[cfg(test)]
mod tests;

use crate::failure;
use crate::link::{self, Link};
use crate::process::{DONE, REFUSED, exit_now, usage, watch_signals};
use crate::ranks::Broken;
use cycle::{Cycle, End};
pub use open::Rows;
use protocol::{Event, Outcome, Problem};
use shelf::Shelf;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use store::disk::RealDisk;

/// `run --home HOME RUN_FOLDER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// HOME, so that the process tells whose it is; nothing is read from it here.
    pub home: PathBuf,
    /// The run folder.
    pub folder: PathBuf,
}

impl Arguments {
    /// Parses what follows the verb.
    pub fn parse(rest: &[OsString]) -> Outcome<Arguments> {
        match rest {
            [flag, home, folder] if flag == "--home" => Ok(Arguments { home: home.into(), folder: folder.into() }),
            _ => Err(usage("`run` is called as: anneal-trainer run --home HOME RUN_FOLDER")),
        }
    }
}

/// Runs the attempt; returns the exit status.
pub fn main(arguments: Arguments) -> u8 {
    match link::control_socket().and_then(connect) {
        Ok(link) => attempt(&arguments, &Arc::new(link)),
        Err(problem) => {
            eprintln!("{problem}");
            REFUSED
        }
    }
}

fn connect(stream: std::os::unix::net::UnixStream) -> Outcome<Link> {
    let overdue = || {
        eprintln!("the supervisor is gone and the time to save is over: leaving");
        exit_now(REFUSED)
    };
    let link = Link::open(stream, overdue)?;
    let knock = link.knock();
    watch_signals(move || knock.stop())?;
    Ok(link)
}

/// A failure of a device under way ends the process, not the job: the supervisor is told why and starts another attempt.
fn attempt(arguments: &Arguments, link: &Arc<Link>) -> u8 {
    let told = Arc::clone(link);
    let broken: Broken = Arc::new(move |problem| leave_broken(&told, problem));
    match catch_unwind(AssertUnwindSafe(|| run(arguments, link, &broken))) {
        Ok(status) => status,
        Err(panic) if panic.is::<kernels::cuda::DeviceFailure>() => leave_broken(link, failure::of_panic(&*panic)),
        Err(panic) => resume_unwind(panic),
    }
}

/// Leaves at once: what a lost device has under way would never end.
fn leave_broken(link: &Link, problem: Problem) -> ! {
    eprintln!("broken: {problem}");
    link.broken(problem);
    exit_now(REFUSED)
}

fn run(arguments: &Arguments, link: &Link, broken: &Broken) -> u8 {
    let start = Instant::now();
    let clock = move || start.elapsed();
    let opened = match open::open(&arguments.folder, &RealDisk, link, broken) {
        Ok(opened) => opened,
        Err(problem) => return failed(link, open::safe_step(&arguments.folder, &RealDisk), problem),
    };
    eprintln!(
        "run {}: {} steps done of {}",
        opened.run.id(),
        opened.ranks.first().progress().step,
        opened.plan.run.steps
    );
    let (train, evaluation) = (Rows(opened.cache.train()), Rows(opened.cache.evaluation()));
    let best = open::best_evaluations(&opened.run, &opened.plan, opened.ranks.first());
    let shelf = Shelf::new(&RealDisk, &opened.run, &opened.plan, opened.restored.as_ref(), best, clock());
    let mut cycle =
        Cycle::new(&opened.plan, opened.ranks, &train, &evaluation, link, shelf, &clock, opened.unjournaled);
    match cycle.run(opened.warnings) {
        Ok(End::Finished | End::Left | End::Orphaned) => DONE,
        Err(problem) => failed(link, cycle.safe_step(), problem),
    }
}

fn failed(link: &Link, step: u64, problem: Problem) -> u8 {
    eprintln!("failed: {problem}");
    let kept = match step {
        0 => "nothing had been saved yet".to_owned(),
        step => format!("the checkpoint of step {step}"),
    };
    link.event(Event::Failed { step, problem: problem.kept(kept) });
    REFUSED
}
