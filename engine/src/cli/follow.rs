//! A live run on the terminal: JSON lines, a progress bar, or plain lines.
//!
//! Not here: how a run is followed (`engine::follow`); this only renders entries and asks what Ctrl-C means.

use super::{DONE, FAILED, STOPPED, Voice, put, show};
use crate::engine::Engine;
use indicatif::{ProgressBar, ProgressStyle};
use protocol::event::Step;
use protocol::link::Request;
use protocol::problem::{Outcome, Problem};
use protocol::{Entry, Event};
use std::collections::VecDeque;
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Least time between two step lines where there is no terminal: a log stays readable.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Steps whose mean time the rest is reckoned with.
const TIMES: usize = 16;

/// Follows a job to its end; the exit status says how it ended.
pub fn follow(engine: &mut Engine, id: &str, voice: Voice) -> Outcome<i32> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let hook = signal_hook::flag::register(signal_hook::consts::SIGINT, interrupted.clone());
    hook.map_err(|e| Problem::io(&e, "listening for Ctrl-C", Path::new("SIGINT")))?;
    let mut screen = Screen::new(voice);
    let mut last = None;
    let mut detached = false;
    let home = engine.home().path().to_owned();
    let run = engine.run_folder(id)?;
    engine.follow(id, &mut |entry| {
        if let Some(entry) = entry {
            screen.entry(entry);
            last = Some(entry.event.clone());
        }
        if interrupted.swap(false, Ordering::Relaxed) {
            detached = screen.ask(&run, id);
        }
        !detached
    })?;
    screen.close();
    if detached {
        screen.say(&format!("{id} goes on by itself; see it with: anneal --home {} watch {id}", home.display()));
        return Ok(DONE);
    }
    Ok(screen.farewell(id, &run, last.as_ref()))
}

/// What the rest takes, by the steps' own times: what the journal tells of the past comes all at once, and a clock of this
/// process would take it for speed. Nothing before the third step.
fn left(times: &VecDeque<f64>, steps: u64) -> String {
    if times.len() < 3 || steps == 0 {
        return String::new();
    }
    let mean_ms = times.iter().sum::<f64>() / times.len() as f64;
    format!(" · {} left", show::duration(mean_ms * steps as f64 / 1000.0))
}

/// One line of progress of a task that is not a run.
pub fn progress(phase: &str, done: u64, total: u64, unit: &str) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let part = if total > 0 { format!(" of {}", show::count(total)) } else { String::new() };
    eprint!("\r\x1b[K{phase}: {}{part} {unit}", show::count(done));
    if total > 0 && done >= total {
        eprintln!();
    }
    let _ = std::io::stderr().flush();
}

/// Where and how a run is shown.
struct Screen {
    voice: Voice,
    bar: Option<ProgressBar>,
    printed: Option<Instant>,
    /// Wall times of the newest steps, in milliseconds.
    times: VecDeque<f64>,
    steps_total: u64,
}

impl Screen {
    fn new(voice: Voice) -> Screen {
        let live = !voice.json && !voice.quiet && std::io::stderr().is_terminal();
        let bar = live.then(|| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Screen { voice, bar, printed: None, times: VecDeque::new(), steps_total: 0 }
    }

    fn entry(&mut self, entry: &Entry) {
        if self.voice.json {
            put(&(serde_json::to_string(entry).unwrap_or_default() + "\n"));
            return;
        }
        match &entry.event {
            Event::Step(step) => self.step(step),
            event => {
                if let Event::Started { step, steps_total } = event {
                    self.times.clear();
                    self.steps_total = *steps_total;
                    if let Some(bar) = &self.bar {
                        bar.set_length(*steps_total);
                        bar.set_position(*step);
                    }
                }
                self.say(&sentence(event));
            }
        }
    }

    fn step(&mut self, s: &Step) {
        let text = format!(
            "loss {:.4} · {:.0} tokens/s · lr {:.2e} · grad {:.2}",
            s.loss, s.tokens_per_second, s.learning_rate, s.grad_norm
        );
        if self.times.len() == TIMES {
            self.times.pop_front();
        }
        self.times.push_back(s.step_ms);
        if let Some(bar) = &self.bar {
            bar.set_position(s.step);
            bar.set_message(format!("{text}{}", left(&self.times, self.steps_total.saturating_sub(s.step))));
        } else if !self.voice.quiet && self.printed.is_none_or(|t| t.elapsed() >= LINE_EVERY) {
            self.printed = Some(Instant::now());
            put(&format!("step {:>6} · {text}\n", s.step));
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            _ if self.voice.json || self.voice.quiet => {}
            Some(bar) => bar.println(text),
            None => put(&format!("{text}\n")),
        }
    }

    fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Ctrl-C: true when the user wants to leave. Without a terminal nobody can answer: the job goes on by itself.
    fn ask(&self, run: &store::run::RunFolder, id: &str) -> bool {
        if !std::io::stdin().is_terminal() {
            return true;
        }
        let question = || {
            eprint!("\n{id}: [d]etach, [p]ause, [s]top or [c]ontinue? ");
            let _ = std::io::stderr().flush();
            let mut line = String::new();
            let _ = std::io::stdin().lock().read_line(&mut line);
            line.trim().to_lowercase()
        };
        let answer = match &self.bar {
            Some(bar) => bar.suspend(question),
            None => question(),
        };
        let request = match answer.chars().next() {
            Some('c') => return false,
            Some('p') => Request::Pause,
            Some('s') => Request::Stop,
            _ => return true,
        };
        if let Err(problem) = crate::supervisor::request(run.path(), request) {
            eprint!("{}", show::problem(&problem));
        }
        request == Request::Pause
    }

    /// Last words, and the exit status.
    fn farewell(&self, id: &str, run: &store::run::RunFolder, last: Option<&Event>) -> i32 {
        match last {
            Some(Event::Finished { .. }) => {
                self.checkpoint(run);
                DONE
            }
            Some(Event::Stopped { .. }) => {
                self.checkpoint(run);
                self.say(&format!("go on with: anneal resume {id}"));
                STOPPED
            }
            Some(Event::Interrupted { .. }) => {
                eprintln!("supervisor lost; go on with: anneal resume {id}");
                FAILED
            }
            _ => FAILED,
        }
    }

    fn checkpoint(&self, run: &store::run::RunFolder) {
        if let (Some(restore), _) = store::checkpoint::newest_good(&store::disk::RealDisk, &run.checkpoints(), run.id())
        {
            self.say(&format!("checkpoint: {}", restore.dir.display()));
        }
    }
}

/// An event in words.
fn sentence(event: &Event) -> String {
    match event {
        Event::Queued { ticket, devices } => format!("queued: waits for {} (ticket {ticket})", devices.join(", ")),
        Event::Started { step, steps_total } => format!("started at step {step} of {steps_total}"),
        Event::Step(s) => format!("step {}: loss {:.4}", s.step, s.loss),
        Event::Evaluation { step, loss, perplexity, .. } => {
            format!("step {step:>6} · evaluation loss {loss:.4}, perplexity {perplexity:.2}")
        }
        Event::Snapshot { step } => format!("step {step:>6} · in host memory"),
        Event::Checkpoint { step, bytes, seconds, .. } => {
            format!("step {step:>6} · checkpoint saved, {} in {seconds:.2} s", show::size(*bytes))
        }
        Event::Warning { problem, .. } => format!("warning: {}", show::printable(&problem.sentence())),
        Event::Restarted { step, why } => format!("restarted from step {step}: {}", show::printable(&why.sentence())),
        Event::Paused { step } => format!("paused at step {step}, saved"),
        Event::Resumed { step } => format!("resumed at step {step}"),
        Event::Stopping { step } => format!("stopping at step {step}"),
        Event::Stopped { step } => format!("stopped at step {step}, saved"),
        Event::Interrupted { step, problem } => {
            format!("interrupted at step {step}: {}", show::printable(&problem.sentence()))
        }
        Event::Skipped { step, problem } => {
            format!("step {step:>6} · skipped: {}", show::printable(&problem.sentence()))
        }
        Event::Rewound { step, problem } => format!("rewound to step {step}: {}", show::printable(&problem.sentence())),
        Event::Finished { step, loss, memory } => {
            format!("finished: {step} steps, loss {loss:.4}, {} at most", show::size(memory.host_bytes_peak))
        }
        Event::Failed { step, problem } => format!("failed at step {step}\n{}", show::problem(problem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_the_times_of_steps() {
        assert_eq!(left(&VecDeque::from([2000.0; 8]), 90), " · 3 min 00 s left");
        assert_eq!(left(&VecDeque::from([2000.0; 2]), 90), "");
        assert_eq!(left(&VecDeque::from([2000.0; 8]), 0), "");
    }
}
