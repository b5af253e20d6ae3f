//! The verdict on a step before any weight moves: go on, leave this step out, or end the run.
//!
//! A step whose loss or gradient norm is not finite is left out and said; it is never averaged away. Not here: clipping
//! (`step`), and going back to an earlier step (a later verdict).

use protocol::{Code, Problem};

/// Steps left out in a row after which the run ends: a single bad batch passes, a broken model does not waste a night.
pub const SKIPS_IN_A_ROW: u32 = 5;

/// What to do with a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Apply it.
    Proceed,
    /// Leave it out; weights and optimizer state stay as they are.
    Skip(Problem),
    /// End the run.
    Halt(Problem),
}

/// Judges steps; remembers how many were left out in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    skipped_in_a_row: u32,
}

impl Guard {
    /// A guard that has seen this many skips in a row, as a restored run has.
    pub fn new(skipped_in_a_row: u32) -> Guard {
        Guard { skipped_in_a_row }
    }

    /// Skips in a row so far.
    pub fn skipped_in_a_row(&self) -> u32 {
        self.skipped_in_a_row
    }

    /// Judges step `step` (from 1) by its mean loss and gradient norm.
    pub fn judge(&mut self, step: u64, loss: f64, grad_norm: f64) -> Verdict {
        let what = match (loss.is_finite(), grad_norm.is_finite()) {
            (true, true) => {
                self.skipped_in_a_row = 0;
                return Verdict::Proceed;
            }
            (false, _) => format!("the loss of step {step} is not finite ({loss})"),
            (true, false) => format!("the gradient norm of step {step} is not finite ({grad_norm})"),
        };
        self.skipped_in_a_row += 1;
        let kept = "weights and optimizer state are as before this step";
        if self.skipped_in_a_row < SKIPS_IN_A_ROW {
            let remedy = "the step was left out; if this repeats, lower the learning rate or look at its rows";
            return Verdict::Skip(Problem::new(Code::NotFinite, what).kept(kept).remedy(remedy));
        }
        let why = format!("{SKIPS_IN_A_ROW} steps in a row were not finite");
        let remedy = "start again with a lower learning rate; check the model's weights and the data";
        Verdict::Halt(Problem::new(Code::NotFinite, what).why(why).kept(kept).remedy(remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_batch_is_left_out_and_training_goes_on() {
        let mut guard = Guard::default();
        assert!(matches!(guard.judge(1, f64::NAN, 1.0), Verdict::Skip(p) if p.code == Code::NotFinite));
        assert_eq!(guard.judge(2, 1.0, 1.0), Verdict::Proceed);
        assert_eq!(guard.skipped_in_a_row(), 0);
    }

    #[test]
    fn a_model_that_only_makes_nan_ends_the_run_at_the_fifth_step() {
        let mut guard = Guard::default();
        for step in 1..5 {
            assert!(matches!(guard.judge(step, 1.0, f64::INFINITY), Verdict::Skip(_)));
        }
        assert!(matches!(guard.judge(5, 1.0, f64::NAN), Verdict::Halt(p) if p.why.contains('5')));
    }

    #[test]
    fn a_restart_does_not_forget_skips() {
        let mut guard = Guard::new(4);
        assert!(matches!(guard.judge(9, f64::NAN, 0.0), Verdict::Halt(_)));
    }
}
