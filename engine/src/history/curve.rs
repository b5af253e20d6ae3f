//! A run's curve in few points. A million steps are read block by block in bounded memory: buckets of one step, and whenever
//! there are too many, each two become one. So a bucket has a power of two of steps, counted from the first in range, and a
//! curve that grows keeps its points where they are until it has twice as many.
//!
//! Not here: other columns than a screen draws (`metrics` gives every one).

use super::evaluations::{self, EvaluationRow};
use super::failure::Answer;
use super::jobs::Job;
use super::marks::{self, MarkRow};
use super::steps::{self, Columns};
use protocol::view::{Axis, Curve, CurveQuery, EvaluationPoint, Mark};
use protocol::{Event, Problem, limits};
use rusqlite::Connection;

/// The curve of a job whose rows were proved. Call inside a transaction.
pub fn of(db: &Connection, job: &Job, query: &CurveQuery) -> Answer<Curve> {
    let origin_ms = job.progress.summary.started.or(job.progress.summary.created).unwrap_or(0) as f64;
    let mut scan = Scan { query, origin_ms, any: false, x: f64::NEG_INFINITY, buckets: Buckets::new(query.points) };
    let (first, last) = match query.axis {
        Axis::Step => (query.from.unwrap_or(0.0).ceil() as u64, query.to.unwrap_or(f64::MAX).floor() as u64),
        Axis::Seconds | Axis::Tokens => (0, u64::MAX),
    };
    steps::each_block(db, job.key(), first, last, &mut |columns| {
        scan.take(columns);
        true
    })?;
    let Scan { buckets, origin_ms, .. } = scan;
    let range = Range::of(query, &buckets, origin_ms);
    let limit = limits::CURVE_POINTS as usize;
    let evaluation = |row: &EvaluationRow| range.has(row.step, row.at_ms);
    let mark = |row: &MarkRow| range.has(row.event.step(), row.at_ms);
    let evaluations = evaluations::newest(db, job.key(), limit, &evaluation)?;
    let marks = marks::foremost(db, job.key(), limit, &mark)?;
    Ok(Curve {
        evaluations: evaluations.iter().map(|row| range.evaluation_point(row)).collect(),
        marks: marks.into_iter().map(|row| range.mark(row)).collect(),
        ..buckets.curve()
    })
}

/// What a point shows of a step.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    step: u64,
    loss: f64,
    grad_norm: f64,
    learning_rate: f64,
    tokens_per_second: f64,
}

/// Steps put together: the last of them, and the extremes of their finite losses.
struct Bucket {
    rows: u64,
    last: Point,
    min: f64,
    max: f64,
}

impl Bucket {
    fn of(point: Point) -> Bucket {
        let (min, max) =
            if point.loss.is_finite() { (point.loss, point.loss) } else { (f64::INFINITY, f64::NEG_INFINITY) };
        Bucket { rows: 1, last: point, min, max }
    }

    fn append(&mut self, next: &Bucket) {
        self.rows += next.rows;
        self.last = next.last;
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
    }
}

struct Buckets {
    limit: usize,
    /// Steps of a full bucket.
    size: u64,
    rows: u64,
    list: Vec<Bucket>,
}

impl Buckets {
    fn new(points: u32) -> Buckets {
        let limit = points.clamp(1, limits::CURVE_POINTS) as usize;
        Buckets { limit, size: 1, rows: 0, list: Vec::with_capacity(limit) }
    }

    fn push(&mut self, point: Point) {
        self.rows += 1;
        let room = self.list.last().is_some_and(|last| last.rows < self.size);
        if !room && self.list.len() == self.limit {
            self.halve();
        }
        let next = Bucket::of(point);
        match self.list.last_mut() {
            Some(last) if last.rows < self.size => last.append(&next),
            _ => self.list.push(next),
        }
    }

    fn halve(&mut self) {
        self.size *= 2;
        let pairs = std::mem::take(&mut self.list);
        for (i, bucket) in pairs.into_iter().enumerate() {
            match self.list.last_mut() {
                Some(last) if i % 2 == 1 => last.append(&bucket),
                _ => self.list.push(bucket),
            }
        }
    }

    fn curve(self) -> Curve {
        let list = &self.list;
        let numbers = |of: &dyn Fn(&Bucket) -> f64| list.iter().map(|bucket| finite(of(bucket))).collect::<Vec<_>>();
        Curve {
            x: list.iter().map(|bucket| bucket.last.x).collect(),
            step: list.iter().map(|bucket| bucket.last.step).collect(),
            loss: numbers(&|bucket| bucket.last.loss),
            loss_min: numbers(&|bucket| bucket.min),
            loss_max: numbers(&|bucket| bucket.max),
            grad_norm: numbers(&|bucket| bucket.last.grad_norm),
            learning_rate: numbers(&|bucket| bucket.last.learning_rate),
            tokens_per_second: numbers(&|bucket| bucket.last.tokens_per_second),
            rows: self.rows,
            ..Curve::default()
        }
    }
}

fn finite(number: f64) -> Option<f64> {
    Some(number).filter(|number| number.is_finite())
}

/// The way through the blocks.
struct Scan<'a> {
    query: &'a CurveQuery,
    /// When the first step began.
    origin_ms: f64,
    any: bool,
    x: f64,
    buckets: Buckets,
}

impl Scan<'_> {
    fn take(&mut self, columns: &Columns<'_>) {
        if !self.any && columns.rows > 0 {
            self.any = true;
            self.origin_ms = columns.at_ms(0) as f64 - columns.step_ms(0);
        }
        for row in 0..columns.rows {
            let place = match self.query.axis {
                Axis::Step => columns.step(row) as f64,
                Axis::Seconds => (columns.at_ms(row) as f64 - self.origin_ms) / 1000.0,
                Axis::Tokens => columns.tokens(row) as f64,
            };
            // A clock that was set back stands still here: who draws counts on an order.
            self.x = self.x.max(place);
            if is_between(self.x, self.query) {
                self.buckets.push(self.point(columns, row));
            }
        }
    }

    fn point(&self, columns: &Columns<'_>, row: usize) -> Point {
        Point {
            x: self.x,
            step: columns.step(row),
            loss: columns.loss(row),
            grad_norm: columns.grad_norm(row),
            learning_rate: columns.learning_rate(row),
            tokens_per_second: columns.tokens_per_second(row),
        }
    }
}

fn is_between(x: f64, query: &CurveQuery) -> bool {
    query.from.is_none_or(|from| x >= from) && query.to.is_none_or(|to| x <= to)
}

/// Which evaluations and marks belong to a curve, and where they stand on its axis.
struct Range<'a> {
    query: &'a CurveQuery,
    origin_ms: f64,
    /// (step, place) of the points.
    places: Vec<(u64, f64)>,
}

impl<'a> Range<'a> {
    fn of(query: &'a CurveQuery, buckets: &Buckets, origin_ms: f64) -> Range<'a> {
        let places = buckets.list.iter().map(|bucket| (bucket.last.step, bucket.last.x)).collect();
        Range { query, origin_ms, places }
    }

    fn has(&self, step: u64, at_ms: i64) -> bool {
        is_between(self.place(step, at_ms), self.query)
    }

    fn place(&self, step: u64, at_ms: i64) -> f64 {
        match self.query.axis {
            Axis::Step => step as f64,
            Axis::Seconds => (at_ms as f64 - self.origin_ms) / 1000.0,
            Axis::Tokens => self.tokens(step),
        }
    }

    /// Tokens after a step: exact where a point stands for that step, between two points in proportion.
    fn tokens(&self, step: u64) -> f64 {
        let after = self.places.partition_point(|(there, _)| *there < step);
        let before = after.checked_sub(1).map_or((0, 0.0), |at| self.places[at]);
        match self.places.get(after) {
            Some((there, x)) => before.1 + (x - before.1) * (step - before.0) as f64 / (there - before.0).max(1) as f64,
            None => before.1,
        }
    }

    fn evaluation_point(&self, row: &EvaluationRow) -> EvaluationPoint {
        EvaluationPoint { x: self.place(row.step, row.at_ms), step: row.step, loss: finite(row.loss) }
    }

    fn mark(&self, row: MarkRow) -> Mark {
        let step = row.event.step();
        let (x, kind, text) = (self.place(step, row.at_ms), word(&row.event), text(&row.event));
        Mark { x, step, at_ms: row.at_ms, kind, text, problem: problem(row.event) }
    }
}

fn word(event: &Event) -> String {
    let json = serde_json::to_value(event).unwrap_or_default();
    json["event"].as_str().unwrap_or_default().to_owned()
}

fn text(event: &Event) -> Option<String> {
    match event {
        Event::Checkpoint { path, .. } => Some(path.clone()),
        Event::Queued { devices, .. } => Some(devices.join(", ")),
        _ => None,
    }
}

fn problem(event: Event) -> Option<Problem> {
    match event {
        Event::Warning { problem, .. }
        | Event::Restarted { why: problem, .. }
        | Event::Interrupted { problem, .. }
        | Event::Skipped { problem, .. }
        | Event::Rewound { problem, .. }
        | Event::Failed { problem, .. } => Some(problem),
        _ => None,
    }
}
