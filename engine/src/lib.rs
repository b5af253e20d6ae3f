//! The control plane: everything that the window and the command line can ask for, as calls of `Engine`.
//!
//! Not here: numerics and tokenizers (the `anneal-trainer` process; this crate never links them), decisions about memory
//! and time (`plan`), formats of files (`formats`, `store`).

pub mod cli;
pub mod engine;
pub mod follow;
pub mod fork;
pub mod history;
pub mod intake;
pub mod live;
pub mod looking;
pub mod machine;
pub mod queue;
pub mod rows;
pub mod sample;
pub mod screen;
pub mod shelf;
pub mod supervisor;
pub mod tail;
pub mod trainer_call;
pub mod trash;

pub use engine::Engine;
