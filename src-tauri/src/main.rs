//! `anneal-desktop`: the window. It converts what the page asks, calls the engine once, and converts the answer.
//!
//! Not here: anything that outlives the window (`anneal supervise`), anything the page draws (`ui`), any decision.

mod arguments;
mod ask;
mod asked;
mod calls;
mod commands;
#[cfg(test)]
mod config_tests;
mod desktop;
mod environment;
mod grants;
#[cfg(test)]
mod hostile;
mod inbox;
mod pool;
#[cfg(test)]
mod question_tests;
mod shell;
mod single;
mod window;

use arguments::Asked;
use inbox::Inbox;
use protocol::problem::{Outcome, Problem};
use shell::Shell;
use single::Start;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    // SAFETY: nothing has started a thread yet.
    unsafe { environment::correct() };
    let here = std::env::current_dir().unwrap_or_default();
    match arguments::read(std::env::args_os().skip(1), &here) {
        Asked::Print(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Asked::Refuse(text) => fail(&text),
        Asked::Open { home, paths } => match open(home, paths) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                let code = fail(&problem.sentence());
                desktop::tell(&problem);
                code
            }
        },
    }
}

fn fail(text: &str) -> ExitCode {
    eprintln!("anneal-desktop: {text}");
    ExitCode::FAILURE
}

/// Opens the window, or hands the files to the one there is.
fn open(home: Option<PathBuf>, paths: Vec<PathBuf>) -> Outcome<()> {
    let home = engine::engine::home_path(home.as_deref())?;
    let Start::First(held) = single::start(&home, &paths)? else { return Ok(()) };
    let inbox = Arc::new(Inbox::default());
    inbox.put(paths);
    let later = Arc::clone(&inbox);
    held.listen(move |paths| later.put(paths)).map_err(|e| Problem::io(&e, "listening for later starts", &home))?;
    gtk::init().map_err(|_| no_display())?;
    let shell = Shell::new(home, Arc::clone(&inbox));
    let built = answering(tauri::Builder::default(), shell)
        .setup(move |app| {
            inbox.attach(app.handle());
            window::open(app.handle()).map_err(Into::into)
        })
        .build(context());
    let app = built.map_err(|e| Problem::internal("the window could not be opened").why(e.to_string()))?;
    app.run(|_, _| {});
    Ok(())
}

/// A window that answers the page; tests ask it without one.
fn answering<R: tauri::Runtime>(builder: tauri::Builder<R>, shell: Shell) -> tauri::Builder<R> {
    builder.manage(Arc::new(shell)).invoke_handler(commands::all())
}

/// Configuration, capabilities and page.
fn context<R: tauri::Runtime>() -> tauri::Context<R> {
    tauri::generate_context!()
}

fn no_display() -> Problem {
    Problem::new(protocol::Code::DeviceUnavailable, "there is no display to open a window on")
        .why("neither DISPLAY nor WAYLAND_DISPLAY names one that answers")
        .remedy("start it from a desktop, or use the command line: anneal --help")
}
