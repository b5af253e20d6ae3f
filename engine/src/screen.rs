//! What only a screen asks for: a sorted page of jobs, the jobs that are alive, a curve of a bounded number of points.
//!
//! Not here: a live run (`live`), the log (`tail`), the whole of anything (`engine`).

use crate::engine::Engine;
use protocol::event::{Event, Step};
use protocol::link::Request;
use protocol::problem::Outcome;
use protocol::record::{Comparison, JobRow, JobState, MetricRow};
use protocol::view::{Axis, Curve, CurveQuery, EvaluationPoint, JobPage, JobQuery, JobSort, JobWord, Mark};
use protocol::{Entry, limits};
use std::cmp::Ordering;

/// Points of each curve of a comparison: two lines beside each other need no more than a screen has columns.
const COMPARED: usize = 2000;

impl Engine {
    /// One page of the jobs that match.
    pub fn page(&mut self, query: &JobQuery) -> Outcome<JobPage> {
        // They come newest first; a stable sort keeps that order among equals.
        let mut rows = self.jobs(Some(&query.search))?;
        match (query.sort, query.descending) {
            (JobSort::Created, true) => {}
            (JobSort::Created, false) => rows.reverse(),
            (sort, descending) => rows.sort_by(|a, b| ordered(a, b, sort, descending)),
        }
        let total = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let count = query.count.min(limits::PAGE_ROWS) as usize;
        Ok(JobPage { total, rows: rows.into_iter().skip(query.offset as usize).take(count).collect() })
    }

    /// Jobs that a supervisor owns, newest first.
    pub fn alive(&mut self) -> Outcome<Vec<JobRow>> {
        let mut rows = self.jobs(None)?;
        rows.retain(|row| row.state.is_alive());
        Ok(rows)
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
        let mut rows = Vec::new();
        self.metrics(id, &mut |row| {
            rows.push(row.clone());
            Ok(())
        })?;
        let marks = marks(&self.run_folder(id)?.journal())?;
        Ok(curve_of(&rows, &marks, query))
    }

    /// As `compare`, each curve thinned to what a screen can show.
    pub fn compare_for_screen(&mut self, a: &str, b: &str) -> Outcome<Comparison> {
        let mut both = self.compare(a, b)?;
        (both.curve_a, both.curve_b) = (thinned(both.curve_a), thinned(both.curve_b));
        Ok(both)
    }
}

/// Rows without a value come last, whichever way the others go.
fn ordered(a: &JobRow, b: &JobRow, sort: JobSort, descending: bool) -> Ordering {
    let turn = |order: Ordering| if descending { order.reverse() } else { order };
    let text = |a: &str, b: &str| turn(a.to_lowercase().cmp(&b.to_lowercase()));
    let number = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => turn(a.total_cmp(&b)),
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    match sort {
        JobSort::Created => turn(a.id.cmp(&b.id)),
        JobSort::Name => text(&a.name, &b.name),
        JobSort::Model => text(&a.model, &b.model),
        JobSort::Data => text(&a.data, &b.data),
        JobSort::Stage => text(&a.stage, &b.stage),
        JobSort::State => text(a.state.word(), b.state.word()),
        JobSort::FinalLoss => number(a.final_loss, b.final_loss),
        JobSort::BestLoss => number(a.best_evaluation_loss, b.best_evaluation_loss),
        JobSort::Tokens => turn(a.tokens.cmp(&b.tokens)),
        JobSort::Duration => turn(a.seconds_active.total_cmp(&b.seconds_active)),
    }
}

/// Every event that is neither a step nor an evaluation, from the journal.
fn marks(journal: &std::path::Path) -> Outcome<Vec<Entry>> {
    let mut reader = store::journal::Reader::open(journal, 0)?;
    let mut found = Vec::new();
    while let Some((entry, _)) = reader.next()? {
        if !matches!(entry.event, Event::Step(_) | Event::Evaluation { .. } | Event::Snapshot { .. }) {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Where a step lies on an axis.
struct Scale<'a> {
    rows: &'a [MetricRow],
    axis: Axis,
    begun_ms: f64,
}

impl Scale<'_> {
    fn of_row(&self, row: &MetricRow) -> f64 {
        match self.axis {
            Axis::Step => row.step.step as f64,
            Axis::Tokens => row.step.tokens as f64,
            Axis::Seconds => self.seconds(row.at_ms),
        }
    }

    /// Of an event after `step` steps: where that step lies; the beginning before any.
    fn of_event(&self, step: u64, at_ms: i64) -> f64 {
        match self.axis {
            Axis::Step => step as f64,
            Axis::Seconds => self.seconds(at_ms),
            Axis::Tokens => {
                let after = self.rows.partition_point(|row| row.step.step <= step);
                after.checked_sub(1).map_or(0.0, |i| self.rows[i].step.tokens as f64)
            }
        }
    }

    fn seconds(&self, at_ms: i64) -> f64 {
        ((at_ms as f64 - self.begun_ms) / 1000.0).max(0.0)
    }
}

fn curve_of(rows: &[MetricRow], events: &[Entry], query: &CurveQuery) -> Curve {
    let begun_ms = rows.first().map_or(0.0, |row| row.at_ms as f64 - row.step.step_ms);
    let scale = Scale { rows, axis: query.axis, begun_ms };
    let inside = |x: f64| query.from.is_none_or(|from| x >= from) && query.to.is_none_or(|to| x <= to);
    let shown: Vec<&MetricRow> = rows.iter().filter(|row| inside(scale.of_row(row))).collect();
    let mut curve = Curve { rows: shown.len() as u64, ..Curve::default() };
    let points = query.points.clamp(1, limits::CURVE_POINTS) as usize;
    for bucket in shown.chunks(shown.len().div_ceil(points).max(1)) {
        push(&mut curve, bucket, &scale);
    }
    let evaluation = |row: &MetricRow| {
        let loss = row.evaluation_loss?;
        Some(EvaluationPoint { x: scale.of_row(row), step: row.step.step, loss: finite(loss) })
    };
    curve.evaluations = newest(shown.iter().filter_map(|row| evaluation(row)).collect());
    let marks = events.iter().map(|entry| mark(entry, scale.of_event(entry.event.step(), entry.at_ms)));
    curve.marks = newest(marks.filter(|mark| inside(mark.x)).collect());
    curve
}

fn push(curve: &mut Curve, bucket: &[&MetricRow], scale: &Scale) {
    let Some(last) = bucket.last() else { return };
    let losses = || bucket.iter().filter_map(|row| finite(row.step.loss));
    let value = |of: fn(&Step) -> f64| finite(of(&last.step));
    curve.x.push(scale.of_row(last));
    curve.step.push(last.step.step);
    curve.loss.push(value(|s| s.loss));
    curve.loss_min.push(losses().min_by(f64::total_cmp));
    curve.loss_max.push(losses().max_by(f64::total_cmp));
    curve.grad_norm.push(value(|s| s.grad_norm));
    curve.learning_rate.push(value(|s| s.learning_rate));
    curve.tokens_per_second.push(value(|s| s.tokens_per_second));
}

fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

fn newest<T>(mut all: Vec<T>) -> Vec<T> {
    let surplus = all.len().saturating_sub(limits::CURVE_POINTS as usize);
    all.drain(..surplus);
    all
}

fn mark(entry: &Entry, x: f64) -> Mark {
    let (text, problem) = match &entry.event {
        Event::Checkpoint { path, .. } => (Some(path.clone()), None),
        Event::Queued { devices, .. } => (Some(devices.join(", ")), None),
        Event::Warning { problem, .. }
        | Event::Interrupted { problem, .. }
        | Event::Skipped { problem, .. }
        | Event::Rewound { problem, .. }
        | Event::Failed { problem, .. }
        | Event::Restarted { why: problem, .. } => (None, Some(problem.clone())),
        _ => (None, None),
    };
    let word = serde_json::to_value(&entry.event).ok().and_then(|v| v["event"].as_str().map(str::to_owned));
    let kind = word.unwrap_or_default();
    Mark { x, step: entry.event.step(), at_ms: entry.at_ms, kind, text, problem }
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

    fn row(step: u64, loss: f64) -> MetricRow {
        let tokens = step * 10;
        let step = Step {
            step,
            loss,
            grad_norm: 1.0,
            learning_rate: 0.1,
            targets: 10,
            tokens,
            epoch: 0.0,
            step_ms: 100.0,
            tokens_per_second: 100.0,
        };
        let evaluation_loss = step.step.is_multiple_of(10).then_some(1.5);
        MetricRow { attempt: 1, at_ms: step.step as i64 * 100, step, evaluation_loss }
    }

    #[test]
    fn a_thinned_curve_keeps_every_extreme_and_no_infinity() {
        let mut rows: Vec<MetricRow> = (1..=1000).map(|i| row(i, 2.0)).collect();
        (rows[499].step.loss, rows[700].step.loss, rows[701].step.loss) = (9.0, 0.5, f64::NAN);
        let curve = curve_of(&rows, &[], &CurveQuery { points: 50, ..CurveQuery::default() });
        assert_eq!((curve.x.len(), curve.rows, curve.evaluations.len()), (50, 1000, 100));
        assert_eq!(curve.loss_max.iter().flatten().copied().fold(0.0, f64::max), 9.0);
        assert_eq!(curve.loss_min.iter().flatten().copied().fold(9.0, f64::min), 0.5);
        assert_eq!(curve.step.last(), Some(&1000));
    }

    #[test]
    fn a_range_is_taken_on_the_axis_that_was_asked_for() {
        let rows: Vec<MetricRow> = (1..=100).map(|i| row(i, 2.0)).collect();
        for (axis, from, to) in [(Axis::Step, 11.0, 20.0), (Axis::Tokens, 110.0, 200.0), (Axis::Seconds, 1.1, 2.0)] {
            let curve = curve_of(&rows, &[], &CurveQuery { axis, from: Some(from), to: Some(to), points: 1000 });
            assert_eq!((curve.rows, curve.step.first(), curve.step.last()), (10, Some(&11), Some(&20)), "{axis:?}");
            assert_eq!(curve.x.first().copied(), Some(from));
        }
    }

    #[test]
    fn marks_tell_what_happened_and_where() {
        let rows: Vec<MetricRow> = (1..=10).map(|i| row(i, 2.0)).collect();
        let event = Event::Checkpoint { step: 5, path: "step-5".into(), bytes: 1, seconds: 1.0 };
        let entry = Entry { sequence: 1, attempt: 1, at_ms: 512, job: "j".into(), event };
        let query = CurveQuery { axis: Axis::Tokens, points: 10, ..CurveQuery::default() };
        let curve = curve_of(&rows, &[entry], &query);
        let mark = &curve.marks[0];
        assert_eq!((mark.kind.as_str(), mark.x, mark.step), ("checkpoint", 50.0, 5));
        assert_eq!(mark.text.as_deref(), Some("step-5"));
    }

    #[test]
    fn jobs_without_a_value_come_last_both_ways() {
        let job = |name: &str, final_loss| JobRow {
            id: name.into(),
            name: name.into(),
            state: JobState::Finished,
            model: String::new(),
            data: String::new(),
            stage: String::new(),
            steps: 0,
            steps_total: 0,
            final_loss,
            best_evaluation_loss: None,
            tokens: 0,
            started: None,
            seconds_active: 0.0,
        };
        let names = |descending: bool| {
            let mut rows = [job("a", Some(2.0)), job("b", None), job("c", Some(1.0))];
            rows.sort_by(|x, y| ordered(x, y, JobSort::FinalLoss, descending));
            rows.map(|row| row.name)
        };
        assert_eq!((names(true), names(false)), (["a", "c", "b"].map(String::from), ["c", "a", "b"].map(String::from)));
    }

    #[test]
    fn a_compared_curve_ends_where_the_run_ended() {
        let thin = thinned((1..=10_001).map(|i| (i, 1.0)).collect());
        assert!(thin.len() <= COMPARED && thin.last() == Some(&(10_001, 1.0)), "{}", thin.len());
        assert!(thinned(Vec::new()).is_empty());
    }
}
