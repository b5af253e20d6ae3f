//! What survives: HOME, run folders, locks, journals, checkpoints and the trash, written so that a kill, a full disk or a
//! power cut at any instant leaves either the old state or the new one.
//!
//! Read [`disk`] first (the few calls that durability rests on), then [`checkpoint`] and [`journal`], which are built on them.
//!
//! Not here: what a weight file looks like inside (`formats`), who may start or stop a run (the supervisor in `engine`),
//! the history's index (`engine`), and when to save (`trainer`). Everything is synchronous; nothing reads the clock,
//! randomness or the environment: times and random numbers come in as arguments.

pub mod checkpoint;
pub mod disk;
pub mod home;
pub mod identity;
pub mod journal;
pub mod lock;
pub mod run;
mod seal;
pub mod space;
#[cfg(test)]
mod testing;
pub mod trash;
