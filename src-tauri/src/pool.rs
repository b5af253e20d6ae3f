//! Engines for the page's calls: each call has one to itself, so that a long plan never holds up a click.
//!
//! Not here: what is asked of them (`commands`).

use engine::Engine;
use protocol::problem::{Outcome, Problem};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Engines kept for the next call; others are closed after theirs.
const IDLE: usize = 4;

/// The engines of one HOME that nobody uses now.
pub struct Pool {
    home: PathBuf,
    idle: Mutex<Vec<Engine>>,
}

impl Pool {
    /// A pool that opens engines as they are needed.
    pub fn new(home: PathBuf) -> Pool {
        Pool { home, idle: Mutex::default() }
    }

    /// Opens one engine. Returns its notices. Errors: as `Engine::open`.
    pub fn open(&self) -> Outcome<Vec<Problem>> {
        let (engine, notices) = Engine::open(Some(&self.home))?;
        self.put(engine);
        Ok(notices)
    }

    /// Lends an engine to a call.
    pub fn with<T>(&self, call: impl FnOnce(&mut Engine) -> Outcome<T>) -> Outcome<T> {
        let kept = self.idle().pop();
        let mut engine = match kept {
            Some(engine) => engine,
            None => Engine::open(Some(&self.home))?.0,
        };
        let answer = call(&mut engine);
        engine.cancelled_by(Arc::default());
        self.put(engine);
        answer
    }

    fn put(&self, engine: Engine) {
        let mut idle = self.idle();
        if idle.len() < IDLE {
            idle.push(engine);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Engine>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
