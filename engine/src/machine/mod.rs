//! The machine: what the planner counts with, and samples for people.

use protocol::Outcome;
use protocol::facts::MachineFacts;
use protocol::machine::{MachineSample, Speeds};
use std::path::Path;

/// What the planner counts with. Speeds are those in `HOME/machine.json`, or assumed from the instruction set.
pub fn facts(home: &Path) -> MachineFacts {
    let _ = home;
    todo!()
}

/// A sample of cards and host. Takes at most about two seconds, whatever the driver does.
pub fn sample(home: &Path) -> MachineSample {
    let _ = home;
    todo!()
}

/// Speeds measured before on this very CPU and number of cores; `None` asks for `Bench::Machine` and `remember`.
pub fn measured(home: &Path) -> Option<Speeds> {
    let _ = home;
    todo!()
}

/// Keeps measured speeds as `HOME/machine.json`.
pub fn remember(home: &Path, speeds: &Speeds) -> Outcome<()> {
    let _ = (home, speeds);
    todo!()
}
