//! One supervisor a job: starts the trainer, watches it, restarts it, keeps the journal, answers engines.
//!
//! Read [`core`] first: it decides everything and touches nothing. `drive` carries its decisions out with the help of
//! `spawn` (the trainer's process), `ledger` (the journal's thread), `lines` (messages), `log` (what a trainer prints) and
//! [`socket`] (requests). [`launch`](mod@launch) starts a supervisor that outlives the window; [`reap`](mod@reap) ends a
//! trainer that lost its supervisor.
//!
//! Not here: waiting for devices (`queue`), the journal's format and the run lock (`store`), what a step is (`trainer`).

/// For supervisor.log. The standard library's macro panics where that cannot be written; a full disk must not end a job.
macro_rules! note {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($part)*);
    }};
}

pub mod core;
mod drive;
pub mod launch;
mod ledger;
mod lines;
pub(crate) mod log;
pub mod reap;
pub mod socket;
pub(crate) mod spawn;

pub use drive::lost_checkpoint;
pub use launch::launch;
pub use socket::request;

use drive::Setting;
use launch::Word;
use protocol::{Outcome, Problem};
use std::io::Write;
use std::path::{Path, PathBuf};
use store::home::Home;
use store::run::RunFolder;

/// Exit status of a supervisor that could not begin.
const NEVER_BEGAN: i32 = 3;

/// Runs the supervisor of a job until the job ends: the hidden command `anneal supervise RUN_FOLDER`. HOME is
/// `$ANNEAL_HOME`, else the folder above `runs/`. Says one [`Word`] on standard output. Returns the exit status: 0
/// finished, 1 failed or interrupted, 130 stopped by the user, 3 never begun.
pub fn supervise(run_folder: &Path) -> i32 {
    // SAFETY: this is the first thing the process does besides reading its arguments.
    unsafe { spawn::close_inherited() };
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let begun = setting(run_folder).and_then(|setting| drive::run(setting, || say(&Word::Ready)));
    begun.unwrap_or_else(|problem| {
        note!("{problem}");
        say(&Word::Problem(problem));
        NEVER_BEGAN
    })
}

fn setting(run_folder: &Path) -> Outcome<Setting> {
    let run = RunFolder::open(run_folder)?;
    let home = std::env::var_os("ANNEAL_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let home = home.or_else(|| run.path().ancestors().nth(2).map(Path::to_path_buf));
    let home = home.ok_or_else(|| Problem::internal("this run folder has no HOME above it").file(run.path()))?;
    Setting::new(Home::open(&home)?, run, crate::trainer_call::trainer_path()?)
}

/// Says it to whoever started this process, who then stops listening.
fn say(word: &Word) {
    let mut out = std::io::stdout().lock();
    // A launcher that is gone does not need to know.
    let _ = out.write_all(&lines::line_of(word)).and_then(|()| out.flush());
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}
