//! What the window's calls share: engines, open calls, granted paths, files handed over, the last plan.
//!
//! Not here: the calls themselves (`commands`).

use crate::calls::Calls;
use crate::grants::Grants;
use crate::inbox::Inbox;
use crate::pool::Pool;
use engine::Engine;
use engine::rows::RowsReader;
use protocol::look::RowsAsk;
use protocol::problem::{Code, Outcome, Problem};
use protocol::{JobSpec, Plan};
use serde::de::DeserializeOwned;
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
    rows: Mutex<Option<(String, RowsReader)>>,
}

impl Shell {
    /// The state of a window that opens.
    pub fn new(home: PathBuf, inbox: Arc<Inbox>) -> Shell {
        let (grants, calls, warned) = (Grants::default(), Calls::default(), AtomicBool::new(false));
        grants.allow(&home);
        let pool = Pool::new(home.clone());
        Shell { home, grants, calls, inbox, warned, pool, planned: Mutex::default(), rows: Mutex::default() }
    }

    /// Opens HOME for the first time. Returns notices.
    pub fn open(&self) -> Outcome<Vec<Problem>> {
        self.pool.open()
    }

    /// Lends an engine.
    pub fn engine<T>(&self, call: impl FnOnce(&mut Engine) -> Outcome<T>) -> Outcome<T> {
        self.pool.with(call)
    }

    /// Asks the reader of a job's rows; one that looks at other data makes room. Errors: those of the question.
    pub fn rows<T: DeserializeOwned>(&self, spec: &JobSpec, ask: &RowsAsk) -> Outcome<T> {
        let of = shaping(spec)?;
        let mut open = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_none_or(|(other, _)| *other != of) {
            // The old one goes first: two large tokenizers at once help nobody.
            *open = None;
            *open = Some((of, self.engine(|engine| engine.rows(spec))?));
        }
        let Some((_, reader)) = open.as_mut() else { return Err(Problem::internal("no reader is open")) };
        let answer = reader.ask(ask);
        let lost =
            |problem: &Problem| matches!(problem.code, Code::TrainerDied | Code::TrainerHung | Code::DataChanged);
        if answer.as_ref().is_err_and(lost) {
            *open = None;
        }
        answer
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

/// The part of a job that shapes its rows: a change elsewhere needs no other reader.
fn shaping(spec: &JobSpec) -> Outcome<String> {
    let parts = (&spec.stage, &spec.model.path, &spec.model.preset, &spec.model.tokenizer, &spec.data);
    serde_json::to_string(&parts).map_err(|e| Problem::internal("a job cannot be written").why(e.to_string()))
}

/// Runs a call where it may take its time; a panic in it becomes a problem.
pub async fn apart<T: Send + 'static>(call: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    let run = tauri::async_runtime::spawn_blocking(call).await;
    run.unwrap_or_else(|error| Err(Problem::internal("this could not be done").why(error.to_string())))
}
