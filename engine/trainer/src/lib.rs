//! The data plane: one rank trains a model.

pub mod link;
pub mod process;
pub mod verb;
