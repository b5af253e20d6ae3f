//! Journeys: what a person does, through the real `anneal` and `anneal-trainer`, with real processes and real kills.
//!
//! Not here: rules of the source tree (`tidy`), golden values of the numerics (in the crates that compute them).

mod cards;
mod crash;
mod history;
pub mod hostile;
mod intake;
pub mod lab;
mod path;
pub mod real;
mod refusal;
