//! TEMP

pub mod history;
pub mod intake;
pub mod machine;
pub mod trash;
