//! Engines for the page's calls: each call has one to itself, so that a long plan never holds up a click.
//!
//! Not here: what is asked of them (`commands`).

use engine::Engine;
use protocol::problem::{Outcome, Problem};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Engines kept for the next call; others are closed after theirs.
const IDLE: usize = 4;

/// The engines of one HOME that nobody uses now.
pub struct Pool {
    home: PathBuf,
    /// Opened once and never lent: all others are made of it, in a hundredth of the time that opening takes.
    first: Mutex<Option<Engine>>,
    /// What was met while HOME was opened, until somebody has asked for it.
    notices: Mutex<Vec<Problem>>,
    idle: Mutex<Vec<Engine>>,
}

impl Pool {
    /// A pool that opens engines as they are needed.
    pub fn new(home: PathBuf) -> Pool {
        Pool { home, first: Mutex::default(), notices: Mutex::default(), idle: Mutex::default() }
    }

    /// Opens HOME, once. Returns its notices, to the first who asks, whichever call it was that opened. Errors: as
    /// `Engine::open`.
    pub fn open(&self) -> Outcome<Vec<Problem>> {
        self.first(|_| Ok(()))?;
        Ok(std::mem::take(&mut *held(&self.notices)))
    }

    /// Does something with the first engine, which is opened for it where there is none.
    fn first<T>(&self, call: impl FnOnce(&mut Engine) -> Outcome<T>) -> Outcome<T> {
        let mut first = held(&self.first);
        if let Some(engine) = first.as_mut() {
            return call(engine);
        }
        let (engine, notices) = Engine::open(Some(&self.home))?;
        held(&self.notices).extend(notices);
        call(first.insert(engine))
    }

    /// Lends an engine to a call.
    pub fn with<T>(&self, call: impl FnOnce(&mut Engine) -> Outcome<T>) -> Outcome<T> {
        let kept = held(&self.idle).pop();
        let mut engine = kept.map_or_else(|| self.another(), Ok)?;
        let answer = call(&mut engine);
        engine.cancelled_by(Arc::default());
        self.put(engine);
        answer
    }

    fn another(&self) -> Outcome<Engine> {
        self.first(Engine::another)
    }

    fn put(&self, engine: Engine) {
        let mut idle = held(&self.idle);
        if idle.len() < IDLE {
            idle.push(engine);
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
