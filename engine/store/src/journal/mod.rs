//! The journal of a run: every event, one sealed JSON line each, append-only.
//!
//! Each line is the JSON of a [`protocol::Entry`] with `"sum"` as its last key: XXH3-64 of the bytes before it. One process
//! writes (the supervisor, which holds the run's lock); any number of readers follow the growing file. Only complete lines
//! count: a torn tail is cut when the journal is opened for writing, a damaged line in the middle is skipped and counted.
//!
//! Not here: when to fsync (the supervisor: at once at changes of state, at most a second later for metrics), and the
//! index over all journals (the engine's history).

mod line;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

use line::entry_of;
