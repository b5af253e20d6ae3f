//! All ranks of a run. The first one works on the calling thread and does what only one may do: evaluate, save, speak. The
//! others are threads that make the same steps; each rank owns its device.
//!
//! Not here: what a rank does (`rank`), how gradients are added up (`kernels::group`).

use crate::batch::RowSource;
use crate::rank::{Evaluation, Rank};
use crate::step::StepOutcome;
use crate::weights;
use crate::{device, failure};
use kernels::Device;
use kernels::group::{Group, UniqueId};
use protocol::event::Step;
use protocol::plan::{DevicePeak, Plan};
use protocol::{Outcome, Problem};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use store::checkpoint::Restore;

/// What is done when a rank that nobody waits for cannot go on: it ends the process.
pub type Broken = Arc<dyn Fn(Problem) + Send + Sync>;

/// The rows that every rank draws from.
pub type SharedRows = Arc<dyn RowSource + Send + Sync>;

/// The ranks of a run.
pub struct Ranks {
    first: Rank,
    device: Device,
    others: Vec<Follower>,
}

/// A rank on a thread of its own.
struct Follower {
    orders: Sender<Order>,
    answers: Receiver<Answer>,
}

enum Order {
    /// Joins the group of all ranks.
    Join(UniqueId),
    /// Makes the next step.
    Step,
}

enum Answer {
    /// The rank is there, or why not.
    Ready(Outcome<()>),
    /// It joined, or why not.
    Joined(Outcome<()>),
    /// It made the step; its device's peak of memory.
    Stepped(u64),
}

impl Ranks {
    /// One rank, already made.
    pub fn alone(rank: Rank, device: Device) -> Ranks {
        Ranks { first: rank, device, others: Vec::new() }
    }

    /// All ranks of a plan: from a checkpoint where there is one, else from the plan's first weights. Gives the step events
    /// besides that may not be journaled yet.
    /// Errors: those of a rank; `DeviceUnavailable` for a card that is not there or cannot join the others.
    pub fn open(
        plan: &Plan,
        from: Option<&Restore>,
        rows: &SharedRows,
        broken: &Broken,
    ) -> Outcome<(Ranks, Vec<Step>)> {
        let world = plan.devices.len() as u32;
        let others =
            (1..world).map(|rank| Follower::start(plan, rank, from, rows, broken)).collect::<Outcome<Vec<_>>>()?;
        let device = device_of(plan, 0)?;
        let (mut first, unjournaled) = made(plan, 0, &device, from)?;
        for other in &others {
            other.hear(|answer| if let Answer::Ready(ready) = answer { Some(ready) } else { None })?;
        }
        if world > 1 {
            let id = UniqueId::new().map_err(|e| failure::of_device("the group of all cards", &e))?;
            others.iter().for_each(|other| other.tell(Order::Join(id)));
            join(&mut first, 0, world, id)?;
            for other in &others {
                other.hear(|answer| if let Answer::Joined(joined) = answer { Some(joined) } else { None })?;
            }
        }
        Ok((Ranks { first, device, others }, unjournaled))
    }

    /// The rank that evaluates, saves and speaks.
    pub fn first(&self) -> &Rank {
        &self.first
    }

    /// Makes the next step on all ranks. Errors: as `Rank::step`.
    pub fn step(&mut self, rows: &dyn RowSource) -> Outcome<StepOutcome> {
        self.others.iter().for_each(|other| other.tell(Order::Step));
        self.first.step(rows)
    }

    /// Loss over all of `rows`; as `Rank::evaluate`.
    pub fn evaluate(&mut self, rows: &dyn RowSource, alive: &mut dyn FnMut(u64)) -> Outcome<Evaluation> {
        self.first.evaluate(rows, alive)
    }

    /// The most memory that each device ever held, in the order of ranks.
    pub fn peaks(&self) -> Vec<DevicePeak> {
        let others = self.others.iter().map(|other| {
            let peaks = other.answers.try_iter().filter_map(|answer| match answer {
                Answer::Stepped(bytes) => Some(bytes),
                Answer::Ready(_) | Answer::Joined(_) => None,
            });
            peaks.max().unwrap_or(0)
        });
        std::iter::once(self.device.bytes_peak()).chain(others).map(|bytes_peak| DevicePeak { bytes_peak }).collect()
    }
}

impl Follower {
    fn start(plan: &Plan, rank: u32, from: Option<&Restore>, rows: &SharedRows, broken: &Broken) -> Outcome<Follower> {
        let (orders, heard) = channel();
        let (answer, answers) = channel();
        let (plan, from, rows, broken) = (plan.clone(), from.cloned(), Arc::clone(rows), Arc::clone(broken));
        let work = move || follow(&plan, rank, from.as_ref(), rows.as_ref(), &heard, &answer);
        let guarded = move || match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(problem)) => broken(problem),
            Err(panic) => broken(failure::of_panic(&*panic)),
        };
        let thread = thread::Builder::new().name(format!("anneal-rank-{rank}")).spawn(guarded);
        thread.map_err(|e| Problem::internal("a thread for a rank could not be had").why(e.to_string()))?;
        Ok(Follower { orders, answers })
    }

    /// A rank that is gone has said so through `Broken`.
    fn tell(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    fn hear(&self, wanted: impl Fn(Answer) -> Option<Outcome<()>>) -> Outcome<()> {
        match self.answers.recv().ok().and_then(wanted) {
            Some(outcome) => outcome,
            None => Err(Problem::internal("a rank ended without a word")),
        }
    }
}

/// The life of a rank that follows the first one. An error after the group was joined is the end of all of them: the others
/// wait for this one's part of a sum.
fn follow(
    plan: &Plan,
    rank: u32,
    from: Option<&Restore>,
    rows: &dyn RowSource,
    orders: &Receiver<Order>,
    answers: &Sender<Answer>,
) -> Outcome<()> {
    let opened = device_of(plan, rank).and_then(|device| Ok((made(plan, rank, &device, from)?.0, device)));
    let (mut state, device) = match opened {
        Ok(opened) => opened,
        Err(problem) => {
            let _ = answers.send(Answer::Ready(Err(problem)));
            return Ok(());
        }
    };
    let _ = answers.send(Answer::Ready(Ok(())));
    for order in orders {
        match order {
            Order::Join(id) => {
                let joined = join(&mut state, rank, plan.devices.len() as u32, id);
                let _ = answers.send(Answer::Joined(joined));
            }
            Order::Step => {
                state.step(rows)?;
                let _ = answers.send(Answer::Stepped(device.bytes_peak()));
            }
        }
    }
    Ok(())
}

fn made(plan: &Plan, rank: u32, device: &Device, from: Option<&Restore>) -> Outcome<(Rank, Vec<Step>)> {
    match from {
        Some(restore) => Rank::restore(plan, rank, device, restore),
        None => Ok((Rank::new(plan, rank, device, weights::first(plan)?.as_ref())?, Vec::new())),
    }
}

fn join(state: &mut Rank, rank: u32, world: u32, id: UniqueId) -> Outcome<()> {
    let group = Group::nccl(state.stream(), rank as usize, world as usize, id);
    state.join(group.map_err(|e| failure::of_device("the group of all cards", &e))?);
    Ok(())
}

/// The device of a rank, with the plan's budget.
fn device_of(plan: &Plan, rank: u32) -> Outcome<Device> {
    let name = plan.devices.get(rank as usize).map_or("", String::as_str);
    let device = device::open(name, plan.precision, plan.compute.threads)?;
    device.set_budget(plan.memory.devices.get(rank as usize).map(|d| d.bytes_peak));
    Ok(device)
}

#[cfg(test)]
mod tests;
