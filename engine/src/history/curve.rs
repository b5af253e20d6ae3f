//! A run's curve in few points. Its steps are read in order and in bounded memory, put into buckets: whenever there are too
//! many, each two become one. So a bucket has a power of two of units, counted from the first in range, and a curve that
//! grows keeps its points where they are until it has twice as many. A unit is a step; where the buckets would be as large
//! as a block of steps anyway, it is a block, and only its overview is read.
//!
//! Not here: other columns than a screen draws (`metrics` gives every one).

use super::evaluations::{self, EvaluationRow};
use super::failure::Answer;
use super::jobs::Job;
use super::marks::{self, MarkRow};
use super::overview::{self, Overview, Stamp};
use super::steps::{self, Columns};
use protocol::view::{Axis, Curve, CurveQuery, EvaluationPoint, Mark};
use protocol::{Event, Problem, limits};
use rusqlite::Connection;

/// The curve of a job whose rows were proved. Call inside a transaction.
pub fn of(db: &Connection, job: &Job, query: &CurveQuery) -> Answer<Curve> {
    let origin_ms = job.progress.summary.started.or(job.progress.summary.created).unwrap_or(0) as f64;
    let (buckets, origin_ms) = buckets(db, job.key(), query, origin_ms)?;
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

/// The buckets in range, and when the first step began (`origin_ms` where there is none).
fn buckets(db: &Connection, job: i64, query: &CurveQuery, origin_ms: f64) -> Answer<(Buckets, f64)> {
    let mut blocks = 0;
    let mut way = Way::new(query, origin_ms);
    overview::each(db, job, &mut |overview| {
        blocks += usize::from(way.pass(&overview).is_some());
        Ok(())
    })?;
    let mut way = Way::new(query, origin_ms);
    let mut buckets = Buckets::new(query.points);
    // One bucket a block gives more than half of the points that were asked for: no step need be read.
    let coarse = blocks * 2 > buckets.limit;
    overview::each(db, job, &mut |overview| {
        let before = way.x;
        match way.pass(&overview) {
            Some(Part { whole: true, to, .. }) if coarse => buckets.push(Bucket::of_block(&overview, to)),
            Some(_) => {
                let mut scan = Scan { way: Way { x: before, ..way.clone() }, buckets: &mut buckets, edge: None };
                steps::block(db, job, overview.block, &mut |columns| scan.take(columns, coarse))?;
                scan.edge.into_iter().for_each(|bucket| buckets.push(bucket));
            }
            None => {}
        }
        Ok(())
    })?;
    Ok((buckets, way.origin_ms))
}

/// The way along the axis that was asked for.
#[derive(Clone)]
struct Way<'a> {
    query: &'a CurveQuery,
    /// When the first step began.
    origin_ms: f64,
    any: bool,
    /// The place that was reached. A clock that was set back stands still here: who draws counts on an order.
    x: f64,
}

/// What a block covers of the axis.
struct Part {
    /// Place of its last step.
    to: f64,
    /// All of it is in range.
    whole: bool,
}

impl<'a> Way<'a> {
    fn new(query: &'a CurveQuery, origin_ms: f64) -> Way<'a> {
        Way { query, origin_ms, any: false, x: f64::NEG_INFINITY }
    }

    /// Goes past a block; what of it is in range.
    fn pass(&mut self, block: &Overview) -> Option<Part> {
        if !self.any {
            (self.any, self.origin_ms) = (true, block.first.at_ms as f64 - block.first_step_ms);
        }
        let from = self.reach(block.first);
        let to = self.reach(block.highest);
        let (before, behind) =
            (self.query.from.is_some_and(|start| to < start), self.query.to.is_some_and(|end| from > end));
        let whole = is_between(from, self.query) && is_between(to, self.query);
        (!before && !behind).then_some(Part { to, whole })
    }

    fn reach(&mut self, stamp: Stamp) -> f64 {
        let place = match self.query.axis {
            Axis::Step => stamp.step as f64,
            Axis::Seconds => (stamp.at_ms as f64 - self.origin_ms) / 1000.0,
            Axis::Tokens => stamp.tokens as f64,
        };
        self.x = self.x.max(place);
        self.x
    }
}

/// The steps of a block that are in range.
struct Scan<'a> {
    way: Way<'a>,
    buckets: &'a mut Buckets,
    /// All of them as one, where a block is the unit.
    edge: Option<Bucket>,
}

impl Scan<'_> {
    fn take(&mut self, columns: &Columns<'_>, coarse: bool) {
        for row in 0..columns.rows {
            let x = self.way.reach(columns.stamp(row));
            if !is_between(x, self.way.query) {
                continue;
            }
            let bucket = Bucket::of_step(columns, row, x);
            match &mut self.edge {
                _ if !coarse => self.buckets.push(bucket),
                Some(edge) => edge.take_in(&bucket),
                edge => *edge = Some(bucket),
            }
        }
    }
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
    units: u64,
    rows: u64,
    last: Point,
    min: f64,
    max: f64,
}

impl Bucket {
    fn of_step(columns: &Columns<'_>, row: usize, x: f64) -> Bucket {
        let loss = columns.loss(row);
        let (min, max) = if loss.is_finite() { (loss, loss) } else { (f64::INFINITY, f64::NEG_INFINITY) };
        let last = Point {
            x,
            step: columns.step(row),
            loss,
            grad_norm: columns.grad_norm(row),
            learning_rate: columns.learning_rate(row),
            tokens_per_second: columns.tokens_per_second(row),
        };
        Bucket { units: 1, rows: 1, last, min, max }
    }

    fn of_block(block: &Overview, x: f64) -> Bucket {
        let last = Point {
            x,
            step: block.last.step,
            loss: block.loss,
            grad_norm: block.grad_norm,
            learning_rate: block.learning_rate,
            tokens_per_second: block.tokens_per_second,
        };
        Bucket { units: 1, rows: block.rows, last, min: block.loss_min, max: block.loss_max }
    }

    fn append(&mut self, next: &Bucket) {
        self.units += next.units;
        self.take_in(next);
    }

    /// Becomes larger, and stays as many units.
    fn take_in(&mut self, next: &Bucket) {
        self.rows += next.rows;
        self.last = next.last;
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
    }
}

struct Buckets {
    limit: usize,
    /// Units of a full bucket.
    size: u64,
    list: Vec<Bucket>,
}

impl Buckets {
    fn new(points: u32) -> Buckets {
        let limit = points.clamp(1, limits::CURVE_POINTS) as usize;
        Buckets { limit, size: 1, list: Vec::with_capacity(limit) }
    }

    fn push(&mut self, next: Bucket) {
        let room = self.list.last().is_some_and(|last| last.units < self.size);
        if !room && self.list.len() == self.limit {
            self.halve();
        }
        match self.list.last_mut() {
            Some(last) if last.units < self.size => last.append(&next),
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
            rows: list.iter().map(|bucket| bucket.rows).sum(),
            ..Curve::default()
        }
    }
}

fn finite(number: f64) -> Option<f64> {
    Some(number).filter(|number| number.is_finite())
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
