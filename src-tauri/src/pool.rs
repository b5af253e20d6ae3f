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
    idle: Mutex<Vec<Engine>>,
}

impl Pool {
    /// A pool that opens engines as they are needed.
    pub fn new(home: PathBuf) -> Pool {
        Pool { home, first: Mutex::default(), idle: Mutex::default() }
    }

    /// Opens HOME, once. Returns its notices, to the first who asks. Errors: as `Engine::open`.
    pub fn open(&self) -> Outcome<Vec<Problem>> {
        let mut first = held(&self.first);
        if first.is_some() {
            return Ok(Vec::new());
        }
        let (engine, notices) = Engine::open(Some(&self.home))?;
        *first = Some(engine);
        Ok(notices)
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
        let mut first = held(&self.first);
        match first.as_mut() {
            Some(engine) => engine.another(),
            None => first.insert(Engine::open(Some(&self.home))?.0).another(),
        }
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
