//! What the window's calls share: engines, open calls, granted paths, files handed over, the last plan.
//!
//! Not here: the calls themselves (`commands`).

use crate::calls::Calls;
use crate::grants::Grants;
use crate::inbox::Inbox;
use crate::pool::Pool;
use engine::Engine;
use protocol::problem::{Outcome, Problem};
use protocol::{JobSpec, Plan};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// The window's state.
pub struct Shell {
    /// HOME.
    pub home: PathBuf,
    /// Paths that the page may name.
    pub grants: Grants,
    /// Calls that can be ended.
    pub calls: Calls,
    /// Files from starts of the program.
    pub inbox: Arc<Inbox>,
    /// The page was told that jobs go on; the next wish to close is granted.
    pub warned: AtomicBool,
    pool: Pool,
    planned: Mutex<Option<(JobSpec, Plan)>>,
}

impl Shell {
    /// The state of a window that opens.
    pub fn new(home: PathBuf, inbox: Arc<Inbox>) -> Shell {
        let (grants, calls, warned) = (Grants::default(), Calls::default(), AtomicBool::new(false));
        grants.allow(&home);
        let pool = Pool::new(home.clone());
        Shell { home, grants, calls, inbox, warned, pool, planned: Mutex::default() }
    }

    /// Opens HOME for the first time. Returns notices.
    pub fn open(&self) -> Outcome<Vec<Problem>> {
        self.pool.open()
    }

    /// Lends an engine.
    pub fn engine<T>(&self, call: impl FnOnce(&mut Engine) -> Outcome<T>) -> Outcome<T> {
        self.pool.with(call)
    }

    /// Remembers the plan that the page shows.
    pub fn remember(&self, spec: &JobSpec, plan: &Plan) {
        *self.planned.lock().unwrap_or_else(PoisonError::into_inner) = Some((spec.clone(), plan.clone()));
    }

    /// The plan that the page shows, where it is of this job.
    pub fn plan_of(&self, spec: &JobSpec) -> Option<Plan> {
        let planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        planned.as_ref().filter(|(of, _)| of == spec).map(|(_, plan)| plan.clone())
    }
}

/// Runs a call where it may take its time; a panic in it becomes a problem.
pub async fn apart<T: Send + 'static>(call: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    let run = tauri::async_runtime::spawn_blocking(call).await;
    run.unwrap_or_else(|error| Err(Problem::internal("this could not be done").why(error.to_string())))
}
