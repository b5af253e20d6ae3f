//! The data plane: ranks train a model.
//!
//! Read `step.rs` first: one optimizer step, in the order of the textbook. Then `model` (forward and backward), `batch`
//! (rows to micro-batches), `rank` (all of it in the memory that the plan lists), `ranks`
//! (several of them) and `checkpoint`. The verbs of
//! `anneal-trainer` are in `verb`, its control socket in `link`, the process itself in `process`.
//!
//! Not here: deciding anything (`plan`), reading model folders, tokenizers and data sets (`formats`), arithmetic
//! (`kernels`), durable files (`store`).

/// The standard library's macro panics when standard error cannot be written, and that is a pipe to the supervisor: without
/// one a trainer must save and leave, not die of what it says about it.
macro_rules! eprintln {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($part)*);
    }};
}

pub mod arena;
pub mod batch;
pub mod bench;
pub mod checkpoint;
pub mod device;
pub mod failure;
pub mod generation;
pub mod guard;
pub mod link;
pub mod model;
pub mod optimizer;
pub mod process;
pub mod random;
pub mod rank;
pub mod ranks;
pub mod schedule;
pub mod step;
#[cfg(test)]
mod testing;
pub mod verb;
pub mod weights;
