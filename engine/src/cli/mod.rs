//! The command line: words in, one `Engine` call, words or JSON out.
//!
//! Not here: any decision. `args` names the commands, `show` renders answers for people, `follow` renders a live run.

mod args;
mod follow;
mod shelf;
mod show;

pub use args::{Args, Command};

use crate::engine::Engine;
use clap::Parser;
use protocol::machine::CheckState;
use protocol::problem::{Code, Outcome, Problem};
use protocol::verb::{Bench, Line, Message, Prompt};
use protocol::{JobSpec, link::Request};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Exit status of a finished command.
pub const DONE: i32 = 0;
/// Exit status of a failure.
pub const FAILED: i32 = 1;
/// Exit status of wrong usage.
pub const USAGE: i32 = 2;
/// Exit status of a refusal that a `Problem` explains.
pub const REFUSED: i32 = 3;
/// Exit status after the user stopped the run.
pub const STOPPED: i32 = 130;

/// How answers are printed.
#[derive(Clone, Copy, Debug)]
pub struct Voice {
    /// JSON instead of words.
    pub json: bool,
    /// Only answers, no notices or progress.
    pub quiet: bool,
}

/// Understands the words of a command line, runs the command and returns the exit status.
pub fn main(words: impl IntoIterator<Item = OsString>) -> i32 {
    let words: Vec<OsString> = words.into_iter().collect();
    match Args::try_parse_from(&words) {
        Ok(args) => run(args),
        Err(answer) => {
            // `--help` and `--version` are answers too.
            let misused = answer.exit_code() != DONE;
            if misused && words.iter().any(|word| word == "--json") {
                Voice { json: true, quiet: false }.problem(&misuse(&answer));
            } else {
                let _ = answer.print();
            }
            if misused { USAGE } else { DONE }
        }
    }
}

/// The parser's text as a problem: its first paragraph says what is wrong.
fn misuse(answer: &clap::Error) -> Problem {
    use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
    let text = answer.to_string();
    let (what, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let what = match answer.kind() {
        MissingSubcommand | DisplayHelpOnMissingArgumentOrSubcommand => "no command is given",
        _ => what.strip_prefix("error: ").unwrap_or(what),
    };
    let usage = rest.lines().find(|line| line.starts_with("Usage: ")).unwrap_or_default();
    Problem::new(Code::Usage, what.split_whitespace().collect::<Vec<_>>().join(" "))
        .why(usage)
        .remedy("`anneal --help` lists the commands, `anneal COMMAND --help` the options of one")
}

/// Runs a command and returns the exit status.
pub fn run(args: Args) -> i32 {
    // What follows a command of a later version is swallowed whole, global options too.
    let swallowed = args.command.later().is_some_and(|(_, rest)| rest.iter().any(|word| word == "--json"));
    let voice = Voice { json: args.json || swallowed, quiet: args.quiet };
    match dispatch(args, voice) {
        Ok(status) => status,
        Err(problem) => {
            voice.problem(&problem);
            match problem.code {
                Code::Internal => FAILED,
                Code::Usage => USAGE,
                _ => REFUSED,
            }
        }
    }
}

fn dispatch(args: Args, voice: Voice) -> Outcome<i32> {
    if let Command::Supervise { run_folder } = &args.command {
        return Ok(crate::supervisor::supervise(run_folder));
    }
    if let Some((word, _)) = args.command.later() {
        return Err(Problem::new(Code::NotSupported, format!("`anneal {word}` is not part of this version"))
            .remedy("a later version brings it; `anneal --help` lists what is there"));
    }
    if args.command.only_looks() {
        return look(&mut Engine::look(args.home.as_deref())?, args.command, voice);
    }
    let (mut engine, notices) = Engine::open(args.home.as_deref())?;
    for notice in &notices {
        voice.notice(notice);
    }
    match args.command {
        Command::Plan { job, set, machine } => {
            let spec = read_job(&mut engine, &job, &set)?;
            let plan = engine.plan(&spec, machine.as_deref(), &mut |line| voice.progress(line))?;
            voice.answer(&plan, show::plan)
        }
        Command::Train { job, set, plan } => {
            let spec = read_job(&mut engine, &job, &set)?;
            let id = submit(&mut engine, &spec, plan.as_deref(), voice)?;
            follow::follow(&mut engine, &id, voice)
        }
        Command::Submit { job, set, plan } => {
            let spec = read_job(&mut engine, &job, &set)?;
            let id = submit(&mut engine, &spec, plan.as_deref(), voice)?;
            voice.answer(&serde_json::json!({ "job": id }), |_| {
                format!("submitted: {id}\nwatch it with: anneal watch {id}\n")
            })
        }
        Command::Watch { id } => {
            let id = engine.id(&id)?;
            follow::follow(&mut engine, &id, voice)
        }
        Command::Pause { id } => request(&mut engine, &id, Request::Pause, voice),
        Command::Stop { id } => request(&mut engine, &id, Request::Stop, voice),
        Command::Resume { id } => {
            let id = engine.id(&id)?;
            if let Some(notice) = engine.resume(&id)? {
                voice.notice(&notice);
            }
            voice.answer(&serde_json::json!({ "job": id }), |_| {
                format!("resumed: {id}\nwatch it with: anneal watch {id}\n")
            })
        }
        Command::Fork { id, step, set } => {
            let id = engine.id(&id)?;
            let new = engine.fork(&id, step, &set, &current_folder()?, &mut |line| voice.progress(line))?;
            voice.answer(&serde_json::json!({ "job": new }), |_| format!("forked from {id} at step {step}: {new}\n"))
        }
        Command::Delete { id } => {
            let id = engine.delete(&id)?;
            voice.answer(&serde_json::json!({ "job": id }), |_| format!("moved to the trash: {id}\n"))
        }
        command => ask(&mut engine, command, voice),
    }
}

/// The commands that ask the history.
fn ask(engine: &mut Engine, command: Command, voice: Voice) -> Outcome<i32> {
    match command {
        Command::Jobs { search } => {
            let rows = engine.jobs(search.as_deref())?;
            // An empty answer to a search says nothing of HOME.
            let all = if rows.is_empty() && search.is_some() { engine.jobs(None)?.len() } else { rows.len() };
            voice.answer(&rows, |rows| show::found(rows, all))
        }
        Command::Job { id } => {
            let id = engine.id(&id)?;
            voice.answer(&engine.job(&id)?, show::job)
        }
        Command::Compare { a, b } => {
            let (a, b) = (engine.id(&a)?, engine.id(&b)?);
            voice.answer(&engine.compare(&a, &b)?, |c| show::comparison(c, &a, &b))
        }
        Command::Metrics { id, csv } => metrics(engine, &id, csv, voice),
        Command::Checkpoints { id, verify } => {
            let id = engine.id(&id)?;
            let rows = engine.checkpoints(&id, verify)?;
            let damaged = rows.iter().any(|r| r.problem.is_some());
            voice.answer(&rows, |rows| show::checkpoints(rows))?;
            Ok(if damaged { FAILED } else { DONE })
        }
        _ => Err(Problem::internal("a command without an implementation")),
    }
}

/// The commands that need neither the history nor a HOME that can be written.
fn look(engine: &mut Engine, command: Command, voice: Voice) -> Outcome<i32> {
    match command {
        Command::Inspect { paths, set } => inspect(engine, &paths, &set, voice),
        Command::Preview { model, data, row, max_length } => {
            let job = engine.look_job(&model, &data, max_length)?;
            let preview = engine.preview(&job, row)?;
            voice.answer(&preview, show::preview)
        }
        Command::Export { from, to, format, dtype, base } => {
            let export = protocol::verb::Export { from, to, format, dtype, base };
            let done = engine.export(&export, &mut |line| voice.progress(line))?;
            voice.answer(&done, show::exported)
        }
        Command::Generate { model, adapter, prompt, messages, max_tokens, temperature, seed } => {
            let prompt = prompt_of(prompt, messages)?;
            let request = protocol::verb::Generate { model, adapter, prompt, max_tokens, temperature, seed };
            generate(engine, &request, voice)
        }
        Command::Evaluate { model, adapter, data } => {
            let done = engine.evaluate(&model, adapter.as_deref(), &data, &mut |line| voice.progress(line))?;
            voice.answer(&done, show::evaluated)
        }
        Command::Models { add, remove } => models(engine, add.as_deref(), remove.as_deref(), voice),
        Command::Take { model, to, how, dry_run } => take(engine, &model, &to, &how, dry_run, voice),
        Command::Machine { watch } => machine(engine, watch, voice),
        Command::Doctor => doctor(engine, voice),
        Command::Bench { what } => bench(engine, what, voice),
        _ => Err(Problem::internal("a command without an implementation")),
    }
}

fn inspect(engine: &Engine, paths: &[PathBuf], changes: &[String], voice: Voice) -> Outcome<i32> {
    let items = engine.inspect(paths, changes, &mut |line| voice.progress(line))?;
    let refused = items.iter().all(|i| i.problem.is_some());
    voice.answer(&items, |items| show::items(items))?;
    Ok(if refused { REFUSED } else { DONE })
}

fn submit(engine: &mut Engine, spec: &JobSpec, plan: Option<&Path>, voice: Voice) -> Outcome<String> {
    let plan = match plan {
        Some(file) => engine.stored_plan(spec, file, &mut |line| voice.progress(line))?,
        None => engine.plan(spec, None, &mut |line| voice.progress(line))?,
    };
    if !voice.json && !voice.quiet {
        put(&show::plan(&plan));
    }
    engine.submit(spec, &plan)
}

fn request(engine: &mut Engine, id: &str, request: Request, voice: Voice) -> Outcome<i32> {
    let id = engine.id(id)?;
    let state = engine.request(&id, request)?;
    voice.answer(&serde_json::json!({ "job": id, "state": state.word() }), |_| format!("{id}: {}\n", state.word()))
}

fn metrics(engine: &mut Engine, id: &str, csv: bool, voice: Voice) -> Outcome<i32> {
    let id = engine.id(id)?;
    let json = voice.json && !csv;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut lead = if json { "[".to_owned() } else { show::METRIC_COLUMNS.to_owned() + "\n" };
    let mut gone = None;
    let told = engine.metrics(&id, &mut |row| {
        let text = if json { serde_json::to_string(row).unwrap_or_default() } else { show::metric(row) + "\n" };
        let written = out.write_all(lead.as_bytes()).and_then(|()| out.write_all(text.as_bytes()));
        lead = if json { ",".into() } else { String::new() };
        written.map_err(|e| {
            let problem = Problem::io(&e, "writing to standard output", Path::new("stdout"));
            gone = Some(e);
            problem
        })
    });
    if gone.is_none() {
        told?;
        let tail = if json { if lead == "[" { "[]\n" } else { "]\n" } } else { "" };
        let empty_head = if !json && !lead.is_empty() { lead.as_str() } else { "" };
        gone = out
            .write_all(empty_head.as_bytes())
            .and_then(|()| out.write_all(tail.as_bytes()))
            .and_then(|()| out.flush())
            .err();
    }
    finish(gone)
}

/// Prints a piece of a stream. A reader that went away (`| head`) ends the command quietly, a full disk with a word: there is
/// nobody left to tell the rest, and what was started goes on by itself.
fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        let gone = error.kind() == std::io::ErrorKind::BrokenPipe;
        if !gone {
            let _ = writeln!(std::io::stderr(), "writing to standard output failed: {error}");
        }
        std::process::exit(if gone { DONE } else { FAILED });
    }
}

/// A reader that went away (`| head`) is no failure.
fn finish(error: Option<std::io::Error>) -> Outcome<i32> {
    match error {
        Some(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Problem::io(&e, "writing to standard output", Path::new("stdout")))
        }
        _ => Ok(DONE),
    }
}

fn generate(engine: &mut Engine, request: &protocol::verb::Generate, voice: Voice) -> Outcome<i32> {
    let stream = !voice.json;
    let done = engine.generate(request, &mut |line| {
        if let (Line::Text { text }, true) = (line, stream) {
            put(&show::printable(text));
        }
    })?;
    if stream {
        put("\n");
        if !voice.quiet {
            eprintln!("[{} tokens, {:.1} tokens/s, stopped by {}]", done.tokens, done.tokens_per_second, done.stop);
        }
        return Ok(DONE);
    }
    voice.answer(&done, |_| String::new())
}

fn prompt_of(prompt: Option<String>, messages: Option<PathBuf>) -> Outcome<Prompt> {
    match (prompt, messages) {
        (Some(text), None) => Ok(Prompt::Text(text)),
        (None, Some(file)) => {
            let text = crate::engine::read_bounded(&file, protocol::limits::RECORD_BYTES as u64)?;
            let messages: Vec<Message> = serde_json::from_str(&text).map_err(|e| {
                Problem::new(Code::FileMalformed, "the messages file is not a JSON list of {role, content}")
                    .why(e.to_string())
                    .file(&file)
            })?;
            Ok(Prompt::Messages(messages))
        }
        _ => Err(Problem::new(Code::SettingInvalid, "give either --prompt or --messages")),
    }
}

fn models(engine: &Engine, add: Option<&Path>, remove: Option<&Path>, voice: Voice) -> Outcome<i32> {
    let shelf = match (add, remove) {
        (Some(place), _) => engine.add_place(place)?,
        (None, Some(place)) => engine.remove_place(place)?,
        (None, None) => engine.shelf(),
    };
    voice.answer(&shelf, shelf::shelf)
}

fn take(engine: &Engine, model: &Path, to: &Path, how: &str, dry_run: bool, voice: Voice) -> Outcome<i32> {
    let how = serde_json::from_value(how.into()).map_err(|_| {
        Problem::new(Code::SettingInvalid, format!("\"{how}\" is no way to take a model"))
            .field("how")
            .remedy("use copy, link or move")
    })?;
    let path = engine.shelved(model)?;
    let taken = engine.take_model(&path, to, how, dry_run, &mut |line| voice.progress(line))?;
    voice.answer(&taken, shelf::taken)
}

fn machine(engine: &mut Engine, watch: bool, voice: Voice) -> Outcome<i32> {
    loop {
        let sample = engine.machine();
        voice.answer(&sample, show::machine)?;
        if !watch {
            return Ok(DONE);
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// Status 1 where something stands in the way of work; what is only missing does not.
fn doctor(engine: &mut Engine, voice: Voice) -> Outcome<i32> {
    let checkup = engine.doctor();
    voice.answer(&checkup, show::checkup)?;
    let bad = checkup.checks.iter().any(|check| check.state == CheckState::Bad);
    Ok(if bad { FAILED } else { DONE })
}

fn bench(engine: &mut Engine, what: args::BenchCommand, voice: Voice) -> Outcome<i32> {
    let value = match what {
        args::BenchCommand::Train { shape, method, batch, length, steps, device, precision } => {
            let config = crate::sample::shape(&shape)?;
            let precision = serde_json::from_value(precision.clone().into()).map_err(|_| {
                Problem::new(Code::SettingInvalid, format!("\"{precision}\" is no precision")).remedy("use f32 or bf16")
            })?;
            engine.bench(&Bench::Train { config, shape, method, batch, length, steps, device, precision })?
        }
        args::BenchCommand::Gemm => engine.bench(&Bench::Gemm)?,
        args::BenchCommand::Optimizer { parameters } => engine.bench(&Bench::Optimizer { parameters })?,
        args::BenchCommand::Sample => crate::sample::bench(&mut |line| voice.progress(line))?,
        args::BenchCommand::History => crate::history::bench(&mut |line| voice.progress(line))?,
    };
    voice.answer(&value, |v| format!("{}\n", serde_json::to_string_pretty(v).unwrap_or_default()))
}

fn read_job(engine: &mut Engine, job: &Path, set: &[String]) -> Outcome<JobSpec> {
    if job.as_os_str() == "sample" && !job.is_file() {
        return crate::sample::job(engine.home(), set);
    }
    let text = crate::engine::read_bounded(job, protocol::limits::JOB_BYTES)?;
    let base = current_folder()?;
    let base = base.join(job.parent().unwrap_or(Path::new("")));
    JobSpec::parse(&text, set, &base).map_err(|p| if p.place.line.is_some() { p.file(job) } else { p })
}

fn current_folder() -> Outcome<PathBuf> {
    std::env::current_dir().map_err(|e| Problem::io(&e, "finding the current folder", Path::new(".")))
}

impl Voice {
    /// Prints an answer: JSON as one value, else what `words` makes of it.
    fn answer<T: Serialize>(self, value: &T, words: impl FnOnce(&T) -> String) -> Outcome<i32> {
        let text = if self.json {
            serde_json::to_string(value)
                .map_err(|e| Problem::internal(format!("an answer that JSON cannot hold: {e}")))?
                + "\n"
        } else {
            words(value)
        };
        let mut out = std::io::stdout().lock();
        finish(out.write_all(text.as_bytes()).and_then(|()| out.flush()).err())
    }

    fn problem(self, problem: &Problem) {
        if self.json {
            put(&format!("{}\n", serde_json::json!({ "problem": problem })));
        } else {
            eprint!("{}", show::problem(problem));
        }
    }

    fn notice(self, problem: &Problem) {
        if !self.quiet {
            eprint!("{}", show::problem(problem));
        }
    }

    fn progress(self, line: &Line) {
        if let (Line::Progress { phase, done, total, unit }, false) = (line, self.quiet || self.json) {
            follow::progress(phase, *done, *total, unit);
        }
    }
}
