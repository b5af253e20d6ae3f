//! Files that the program was started with, now or by a later start: kept until the page is there, then told to it.
//!
//! Not here: how a later start hands them over (`single`).

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tauri::{AppHandle, Emitter, Manager};

/// Files kept for a page that does not come: more than a command line holds.
const WAITING: usize = 10_000;

#[derive(Default)]
struct State {
    waiting: Vec<PathBuf>,
    app: Option<AppHandle>,
    page: bool,
}

/// What was handed over.
#[derive(Default)]
pub struct Inbox(Mutex<State>);

impl Inbox {
    /// Takes files; a page that is there sees them at once, and its window comes to the front.
    pub fn put(&self, paths: Vec<PathBuf>) {
        let mut state = self.state();
        if let (Some(app), true) = (state.app.clone(), state.page) {
            drop(state);
            show(&app, &paths);
        } else if state.waiting.len() + paths.len() <= WAITING {
            state.waiting.extend(paths);
        }
    }

    /// The program that shows them is up.
    pub fn attach(&self, app: &AppHandle) {
        self.state().app = Some(app.clone());
    }

    /// The page is there: what has waited for it.
    pub fn take(&self) -> Vec<PathBuf> {
        let mut state = self.state();
        state.page = true;
        std::mem::take(&mut state.waiting)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn show(app: &AppHandle, paths: &[PathBuf]) {
    let shell = app.state::<std::sync::Arc<crate::shell::Shell>>();
    paths.iter().for_each(|path| shell.grants.allow(path));
    if !paths.is_empty() {
        let _ = app.emit_to("main", "opened", paths);
    }
    if let Some(window) = app.get_webview_window("main") {
        let _ = window.unminimize();
        let _ = window.set_focus();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_wait_for_the_page() {
        let inbox = Inbox::default();
        inbox.put(vec!["/a".into()]);
        inbox.put(vec!["/b".into()]);
        assert_eq!(inbox.take(), ["/a", "/b"].map(PathBuf::from));
        assert!(inbox.take().is_empty());
    }
}
