//! The words that all of Anneal's processes share: the job a user asks for, the plan that answers it, the events of a
//! run, and the `Problem` that every refusal carries.
//!
//! Not here: anything that reads a file (`formats`, `store`), decides (`plan`) or computes (`kernels`, `trainer`).

pub mod event;
pub mod facts;
pub mod job;
pub mod limits;
pub mod link;
pub mod look;
pub mod machine;
pub mod plan;
pub mod problem;
pub mod record;
pub mod rows;
pub mod shelf;
pub mod verb;
pub mod view;

#[cfg(test)]
mod bindings;

pub use event::{Entry, Event};
pub use job::JobSpec;
pub use plan::Plan;
pub use problem::{Code, Outcome, Place, Problem};
