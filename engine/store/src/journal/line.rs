//! From a line to its entry.
//!
//! Nearly all lines are steps, and what serde makes of a flattened enum costs four times a plain structure: so a line is first
//! read as a step's, and as any event's where it is none. Both readings give the same entry (a test).

use crate::seal;
use protocol::event::Step;
use protocol::{Entry, Event, limits};
use serde::Deserialize;

/// The entry of a line without its newline; `None` where the line is damaged.
pub fn entry_of(line: &[u8]) -> Option<Entry> {
    if line.len() >= limits::JOURNAL_LINE_BYTES || !seal::is_whole(line) {
        return None;
    }
    step_of(line).or_else(|| any_of(line))
}

fn any_of(line: &[u8]) -> Option<Entry> {
    serde_json::from_slice(line).ok()
}

/// A step's entry with all keys side by side.
#[derive(Deserialize)]
struct StepLine<'a> {
    sequence: u64,
    attempt: u32,
    at_ms: i64,
    job: &'a str,
    event: &'a str,
    step: u64,
    loss: f64,
    grad_norm: f64,
    learning_rate: f64,
    targets: u64,
    tokens: u64,
    epoch: f64,
    step_ms: f64,
    tokens_per_second: f64,
}

/// `None` where it is no step, or one that needs the longer way (an escape in the job's name, a null).
fn step_of(line: &[u8]) -> Option<Entry> {
    let l: StepLine = serde_json::from_slice(line).ok().filter(|l: &StepLine| l.event == "step")?;
    let event = Event::Step(Step {
        step: l.step,
        loss: l.loss,
        grad_norm: l.grad_norm,
        learning_rate: l.learning_rate,
        targets: l.targets,
        tokens: l.tokens,
        epoch: l.epoch,
        step_ms: l.step_ms,
        tokens_per_second: l.tokens_per_second,
    });
    Some(Entry { sequence: l.sequence, attempt: l.attempt, at_ms: l.at_ms, job: l.job.to_owned(), event })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(entry: &Entry) -> Vec<u8> {
        let mut line = Vec::new();
        seal::write(&mut line, entry).unwrap();
        line
    }

    proptest! {
        #[test]
        fn a_step_is_read_the_same_both_ways(
            n: (u64, u32, i64, u64, u64, u64),
            f in proptest::array::uniform6(proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::SUBNORMAL),
            job in "[a-z0-9-]{1,20}|\\PC{0,8}|\"",
        ) {
            let (sequence, attempt, at_ms, step, targets, tokens) = n;
            let [loss, grad_norm, learning_rate, epoch, step_ms, tokens_per_second] = f;
            let event = Event::Step(Step {
                step, loss, grad_norm, learning_rate, targets, tokens, epoch, step_ms, tokens_per_second,
            });
            let entry = Entry { sequence, attempt, at_ms, job, event };
            let line = line(&entry);
            prop_assert_eq!(any_of(&line), Some(entry.clone()));
            prop_assert_eq!(entry_of(&line), Some(entry));
        }
    }

    #[test]
    fn an_event_with_the_keys_of_a_step_is_not_taken_for_one() {
        let paused = Entry { sequence: 1, attempt: 1, at_ms: 0, job: "j".into(), event: Event::Paused { step: 7 } };
        assert_eq!(entry_of(&line(&paused)), Some(paused));
        let other = br#"{"sequence":1,"attempt":1,"at_ms":0,"job":"j","event":"leap","step":1,"loss":1,"grad_norm":1,
            "learning_rate":1,"targets":1,"tokens":1,"epoch":1,"step_ms":1,"tokens_per_second":1}"#;
        assert_eq!((step_of(other), any_of(other)), (None, None));
        assert!(step_of(&String::from_utf8_lossy(other).replace("leap", "step").into_bytes()).is_some());
    }
}
