//! The one test target: whole journeys through the real programs, values of independent implementations, and the rules of
//! the tree.
//!
//! Not here: tests of one crate, which sit beside its code.

#[cfg(test)]
mod e2e;
#[cfg(test)]
mod journeys;
#[cfg(test)]
mod source;
#[cfg(test)]
mod tidy;
