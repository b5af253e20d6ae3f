//! What a job's events come to: a fold over journal entries. Pure; whether a supervisor still lives is asked in `mod.rs`.

use protocol::record::JobState;
use protocol::{Entry, Event, Problem};
use serde::{Deserialize, Serialize};

/// A job, as its events tell it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// State of the last event.
    pub state: JobState,
    /// Attempts made.
    pub attempts: u32,
    /// Steps done.
    pub steps: u64,
    /// Steps planned, once an attempt has started.
    pub steps_total: Option<u64>,
    /// Loss of step `steps`.
    pub final_loss: Option<f64>,
    /// Tokens trained on after it.
    pub tokens: u64,
    /// Lowest evaluation loss so far.
    pub best_evaluation_loss: Option<f64>,
    /// First event, milliseconds since the Unix epoch.
    pub created: Option<i64>,
    /// First start of a trainer.
    pub started: Option<i64>,
    /// What ended the job.
    pub problem: Option<Problem>,
    /// Milliseconds of the spans in which a trainer worked, without the open one.
    active_ms: i64,
    /// Start of the open span.
    active_since: Option<i64>,
    /// Last event.
    last: i64,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary {
            state: JobState::Queued,
            attempts: 0,
            steps: 0,
            steps_total: None,
            final_loss: None,
            tokens: 0,
            best_evaluation_loss: None,
            created: None,
            started: None,
            problem: None,
            active_ms: 0,
            active_since: None,
            last: 0,
        }
    }
}

impl Summary {
    /// Takes the next entry of the journal in.
    pub fn take(&mut self, entry: &Entry) {
        self.created.get_or_insert(entry.at_ms);
        self.take_time(entry);
        self.take_progress(entry);
        self.take_state(&entry.event);
    }

    /// Seconds with a trainer at work, up to the last event.
    pub fn seconds_active(&self) -> f64 {
        let open = self.active_since.map_or(0, |since| (self.last - since).max(0));
        (self.active_ms + open) as f64 / 1000.0
    }

    fn take_time(&mut self, entry: &Entry) {
        match &entry.event {
            Event::Started { .. } => {
                // A span still open means that the last attempt ended without a word: it counts up to its last event.
                self.close_span(self.last);
                self.started.get_or_insert(entry.at_ms);
                self.active_since = Some(entry.at_ms);
            }
            Event::Resumed { .. } => {
                self.active_since.get_or_insert(entry.at_ms);
            }
            Event::Queued { .. } => self.close_span(self.last),
            Event::Paused { .. } | Event::Restarted { .. } => self.close_span(entry.at_ms),
            event if event.ends() => self.close_span(entry.at_ms),
            _ => {}
        }
        self.last = entry.at_ms;
    }

    /// A clock that was set back gives an empty span, never a negative one.
    fn close_span(&mut self, at: i64) {
        if let Some(since) = self.active_since.take() {
            self.active_ms += (at - since).max(0);
        }
    }

    fn take_progress(&mut self, entry: &Entry) {
        match &entry.event {
            Event::Started { step, steps_total } => {
                self.attempts = self.attempts.max(entry.attempt);
                self.steps_total = Some(*steps_total);
                self.go_back_to(*step);
            }
            Event::Rewound { step, .. } => self.go_back_to(*step),
            // Steps sent again after a restart may lie below the step it restarts from.
            Event::Step(s) if s.step >= self.steps => {
                (self.steps, self.tokens, self.final_loss) = (s.step, s.tokens, Some(s.loss));
            }
            Event::Skipped { step, .. } => self.steps = self.steps.max(*step),
            Event::Evaluation { loss, .. } => {
                self.best_evaluation_loss = Some(self.best_evaluation_loss.map_or(*loss, |best| best.min(*loss)));
            }
            _ => {}
        }
    }

    /// The loss shown stays that of the last step made until a new one is.
    fn go_back_to(&mut self, step: u64) {
        self.steps = step;
    }

    fn take_state(&mut self, event: &Event) {
        let next = match event {
            Event::Queued { .. } => JobState::Queued,
            Event::Restarted { .. } => JobState::Starting,
            Event::Paused { .. } => JobState::Paused,
            Event::Stopping { .. } => JobState::Stopping,
            Event::Stopped { .. } => JobState::Stopped,
            Event::Interrupted { .. } => JobState::Interrupted,
            Event::Finished { .. } => JobState::Finished,
            Event::Failed { .. } => JobState::Failed,
            Event::Started { .. } | Event::Resumed { .. } => JobState::Running,
            // A step that ends after stop was asked for does not undo the asking.
            Event::Step(_) | Event::Evaluation { .. } if self.state == JobState::Starting => JobState::Running,
            _ => return,
        };
        self.state = next;
        self.problem = match event {
            Event::Interrupted { problem, .. } | Event::Failed { problem, .. } => Some(problem.clone()),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Code;
    use protocol::event::Step;

    fn step(step: u64) -> Event {
        let (loss, tokens) = (10.0 / step as f64, step * 100);
        let (grad_norm, learning_rate, epoch, step_ms, tokens_per_second) = (1.0, 0.1, 0.5, 10.0, 1e4);
        Event::Step(Step {
            step,
            loss,
            grad_norm,
            learning_rate,
            targets: 50,
            tokens,
            epoch,
            step_ms,
            tokens_per_second,
        })
    }

    fn fold(events: &[(u32, i64, Event)]) -> Summary {
        let mut summary = Summary::default();
        for (i, (attempt, at_ms, event)) in events.iter().enumerate() {
            let (sequence, event) = (i as u64 + 1, event.clone());
            summary.take(&Entry { sequence, attempt: *attempt, at_ms: *at_ms, job: "j".into(), event });
        }
        summary
    }

    fn started(step: u64) -> Event {
        Event::Started { step, steps_total: 4 }
    }

    #[test]
    fn a_job_that_ran_through_is_finished_with_its_last_loss() {
        let queued = Event::Queued { ticket: 1, devices: vec!["cpu".into()] };
        let finished = Event::Finished { step: 2, loss: 5.0, memory: Default::default() };
        let events =
            [(0, 100, queued), (1, 1000, started(0)), (1, 2000, step(1)), (1, 3000, step(2)), (1, 3500, finished)];
        let s = fold(&events);
        assert_eq!((s.state, s.steps, s.final_loss, s.tokens), (JobState::Finished, 2, Some(5.0), 200));
        assert_eq!((s.created, s.started, s.seconds_active()), (Some(100), Some(1000), 2.5));
        assert_eq!((s.attempts, s.steps_total), (1, Some(4)));
    }

    #[test]
    fn a_restart_goes_back_to_its_step_and_counts_only_working_time() {
        let why = Problem::new(Code::TrainerDied, "killed");
        let events = [
            (1, 0, started(0)),
            (1, 1000, step(1)),
            (1, 2000, step(2)),
            (1, 2500, Event::Restarted { step: 1, why }),
            (2, 9000, started(1)),
        ];
        let s = fold(&events);
        assert_eq!((s.state, s.steps, s.attempts, s.seconds_active()), (JobState::Running, 1, 2, 2.5));
        assert_eq!(fold(&[&events[..], &[(2, 9500, step(1)), (2, 9900, step(2))]].concat()).steps, 2);
    }

    #[test]
    fn pausing_does_not_count_as_work_and_stopping_stays_said() {
        let (paused, resumed) = (Event::Paused { step: 1 }, Event::Resumed { step: 1 });
        let mut events = vec![(1, 0, started(0)), (1, 1000, step(1)), (1, 1000, paused)];
        assert_eq!(fold(&events).state, JobState::Paused);
        events.extend([(1, 50_000, resumed), (1, 51_000, step(2)), (1, 51_000, Event::Stopping { step: 2 })]);
        events.push((1, 52_000, step(3)));
        let s = fold(&events);
        assert_eq!((s.state, s.seconds_active()), (JobState::Stopping, 3.0));
    }

    #[test]
    fn a_supervisor_that_vanished_and_a_clock_set_back_give_no_strange_times() {
        let events = [(1, 5000, started(0)), (1, 6000, step(1)), (2, 90_000, started(1)), (2, 80_000, step(2))];
        assert_eq!(fold(&events).seconds_active(), 1.0);
    }

    #[test]
    fn the_problem_of_a_failure_is_kept_until_the_job_goes_on() {
        let failed = Event::Failed { step: 1, problem: Problem::new(Code::NotFinite, "loss is NaN") };
        let mut events = vec![(1, 0, started(0)), (1, 10, failed)];
        assert_eq!(fold(&events).problem.map(|p| p.code), Some(Code::NotFinite));
        events.push((2, 20, started(1)));
        assert_eq!(fold(&events).problem, None);
    }
}
