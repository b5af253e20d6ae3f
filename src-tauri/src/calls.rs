//! Calls that can be ended by the page: each has a number and a flag.
//!
//! Not here: what looks at the flag (`engine::Engine::cancelled_by`, `commands`).

use protocol::problem::{Code, Outcome, Problem};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Calls open at once: every job of a long list may be followed.
const OPEN: usize = 256;
/// Words that came before their calls: they may overtake each other on their way.
const EARLY: usize = 256;

#[derive(Default)]
struct State {
    open: HashMap<u32, Arc<AtomicBool>>,
    early: VecDeque<u32>,
    planning: Arc<AtomicBool>,
    /// Data sets that are being read.
    reading: HashMap<PathBuf, Arc<AtomicBool>>,
}

/// The open calls of the page.
#[derive(Default)]
pub struct Calls(Mutex<State>);

impl Calls {
    /// Begins a call; its flag is set once the page has ended it. Errors: `Busy` where too many are open.
    pub fn begin(&self, token: u32) -> Outcome<Arc<AtomicBool>> {
        let mut state = self.state();
        if state.open.len() >= OPEN {
            return Err(Problem::new(Code::Busy, format!("{OPEN} calls are open at once; no more are taken"))
                .remedy("close what is not needed"));
        }
        let early = state.early.iter().position(|t| *t == token);
        let ended = early.map(|at| state.early.remove(at)).is_some();
        let flag = Arc::new(AtomicBool::new(ended));
        state.open.insert(token, Arc::clone(&flag));
        Ok(flag)
    }

    /// Forgets a call that is over.
    pub fn end(&self, token: u32) {
        self.state().open.remove(&token);
    }

    /// The page wants no more of a call.
    pub fn cancel(&self, token: u32) {
        let mut state = self.state();
        match state.open.get(&token) {
            Some(flag) => flag.store(true, Ordering::Relaxed),
            None => {
                state.early.push_back(token);
                if state.early.len() > EARLY {
                    state.early.pop_front();
                }
            }
        }
    }

    /// Ends every call: the page that asked is gone.
    pub fn cancel_all(&self) {
        let mut state = self.state();
        state.planning.store(true, Ordering::Relaxed);
        state.reading.drain().for_each(|(_, flag)| flag.store(true, Ordering::Relaxed));
        state.open.values().for_each(|flag| flag.store(true, Ordering::Relaxed));
        state.open.clear();
    }

    /// Begins a plan and ends the one before it: nobody waits for that any more.
    pub fn begin_plan(&self) -> Arc<AtomicBool> {
        let mut state = self.state();
        state.planning.store(true, Ordering::Relaxed);
        state.planning = Arc::default();
        Arc::clone(&state.planning)
    }

    /// Begins reading a data set and ends the reading of it before: it is to be read another way now.
    pub fn begin_reading(&self, path: &Path) -> Arc<AtomicBool> {
        let mut state = self.state();
        if state.reading.len() >= OPEN {
            state.reading.drain().for_each(|(_, flag)| flag.store(true, Ordering::Relaxed));
        }
        let flag = Arc::default();
        if let Some(before) = state.reading.insert(path.to_owned(), Arc::clone(&flag)) {
            before.store(true, Ordering::Relaxed);
        }
        flag
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_overtook_its_call_still_ends_it() {
        let calls = Calls::default();
        calls.cancel(7);
        assert!(calls.begin(7).unwrap().load(Ordering::Relaxed));
        let flag = calls.begin(8).unwrap();
        calls.cancel(8);
        assert!(flag.load(Ordering::Relaxed));
        calls.end(7);
        assert!(!calls.begin(7).unwrap().load(Ordering::Relaxed));
    }

    #[test]
    fn reading_anew_ends_the_reading_before_of_the_same_data_alone() {
        let calls = Calls::default();
        let (first, other) = (calls.begin_reading(Path::new("a")), calls.begin_reading(Path::new("b")));
        let second = calls.begin_reading(Path::new("a"));
        let set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        assert!(set(&first) && !set(&second) && !set(&other));
        calls.cancel_all();
        assert!(set(&second) && set(&other));
    }

    #[test]
    fn a_new_plan_ends_the_old_one() {
        let calls = Calls::default();
        let first = calls.begin_plan();
        let second = calls.begin_plan();
        assert!(first.load(Ordering::Relaxed) && !second.load(Ordering::Relaxed));
    }
}
