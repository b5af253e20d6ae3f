//! What only a screen asks for: a sorted page of jobs, the jobs that are alive, a curve of a bounded number of points.
//!
//! Not here: how the history answers them (`history`), a live run (`live`), the log (`tail`), the whole of anything
//! (`engine`).

use crate::engine::Engine;
use protocol::link::Request;
use protocol::problem::Outcome;
use protocol::record::{Comparison, JobRow, JobState};
use protocol::view::{Curve, CurveQuery, JobPage, JobQuery, JobWord};

/// Points of each curve of a comparison: two lines beside each other need no more than a screen has columns.
const COMPARED: usize = 2000;

impl Engine {
    /// One page of the jobs that match.
    pub fn page(&mut self, query: &JobQuery) -> Outcome<JobPage> {
        self.history()?.look()?;
        self.history()?.page(query)
    }

    /// Jobs that a supervisor owns, newest first.
    pub fn alive(&mut self) -> Outcome<Vec<JobRow>> {
        self.history()?.look()?;
        self.history()?.alive()
    }

    /// A word to a job, and its state once the word has had its effect. Errors: as `request` and `resume`.
    pub fn word(&mut self, id: &str, word: JobWord) -> Outcome<JobState> {
        match word {
            JobWord::Pause => self.request(id, Request::Pause),
            JobWord::Stop => self.request(id, Request::Stop),
            JobWord::Checkpoint => self.request(id, Request::Snapshot),
            JobWord::Resume => {
                self.resume(id)?;
                self.state(id)
            }
        }
    }

    /// Part of a job's curve in at most `query.points` places. Errors: `NotFound`.
    pub fn curve(&mut self, id: &str, query: &CurveQuery) -> Outcome<Curve> {
        self.history()?.look()?;
        self.history()?.curve(id, query)
    }

    /// As `compare`, each curve thinned to what a screen can show.
    pub fn compare_for_screen(&mut self, a: &str, b: &str) -> Outcome<Comparison> {
        let mut both = self.compare(a, b)?;
        (both.curve_a, both.curve_b) = (thinned(both.curve_a), thinned(both.curve_b));
        Ok(both)
    }
}

/// Every so-manieth point, the last one always.
fn thinned(curve: Vec<(u64, f64)>) -> Vec<(u64, f64)> {
    let stride = curve.len().div_ceil(COMPARED).max(1);
    let last = curve.len().saturating_sub(1);
    let kept = curve.into_iter().enumerate().filter(|(i, _)| (last - i).is_multiple_of(stride));
    kept.map(|(_, point)| point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compared_curve_ends_where_the_run_ended() {
        let thin = thinned((1..=10_001).map(|i| (i, 1.0)).collect());
        assert!(thin.len() <= COMPARED && thin.last() == Some(&(10_001, 1.0)), "{}", thin.len());
        assert!(thinned(Vec::new()).is_empty());
    }
}
