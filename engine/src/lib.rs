//! TEMP

pub mod history;
pub mod intake;
pub mod machine;
pub mod queue;
pub mod supervisor;
pub mod trainer_call;
pub mod trash;
