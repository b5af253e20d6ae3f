//! From a wish and a machine to a complete plan or a refusal; pure.

pub mod memory;
