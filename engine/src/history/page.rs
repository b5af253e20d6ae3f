//! The order of the job list, and pages of it.

use super::jobs::Job;
use protocol::limits;
use protocol::record::JobRow;
use protocol::view::{JobPage, JobQuery, JobSort};
use std::cmp::{Ordering, Reverse};

/// A job that matches, with the line it makes.
pub type Found<'a> = (JobRow, &'a Job);

/// Newest first.
pub fn newest_first(found: &mut [Found<'_>]) {
    found.sort_by_cached_key(|(_, job)| Reverse((job.progress.summary.created.unwrap_or(i64::MAX), job.id.clone())));
}

/// One page of them. Where the column is equal, newest first.
pub fn of(mut found: Vec<Found<'_>>, query: &JobQuery) -> JobPage {
    newest_first(&mut found);
    let mut keyed: Vec<(Key, JobRow)> =
        found.into_iter().map(|(row, job)| (Key::of(query.sort, &row, job), row)).collect();
    keyed.sort_by(|(a, _), (b, _)| a.compare(b, query.descending));
    let total = keyed.len() as u32;
    let count = query.count.min(limits::PAGE_ROWS) as usize;
    let rows = keyed.into_iter().skip(query.offset as usize).take(count).map(|(_, row)| row).collect();
    JobPage { total, rows }
}

/// What a row is ordered by.
enum Key {
    Text(String),
    Number(f64),
    /// Always last.
    Nothing,
}

impl Key {
    fn of(sort: JobSort, row: &JobRow, job: &Job) -> Key {
        let text = |text: &str| Key::Text(text.to_lowercase());
        let number = |number: Option<f64>| number.filter(|n| n.is_finite()).map_or(Key::Nothing, Key::Number);
        match sort {
            // A job without an event yet is the newest.
            JobSort::Created => Key::Number(job.progress.summary.created.map_or(f64::INFINITY, |ms| ms as f64)),
            JobSort::Name => text(&row.name),
            JobSort::Model => text(&row.model),
            JobSort::Data => text(&row.data),
            JobSort::Stage => text(&row.stage),
            JobSort::State => Key::Number(f64::from(row.state as u8)),
            JobSort::FinalLoss => number(row.final_loss),
            JobSort::BestLoss => number(row.best_evaluation_loss),
            JobSort::Tokens => Key::Number(row.tokens as f64),
            JobSort::Duration => number(Some(row.seconds_active)),
        }
    }

    fn compare(&self, other: &Key, descending: bool) -> Ordering {
        let order = match (self, other) {
            (Key::Text(a), Key::Text(b)) => a.cmp(b),
            (Key::Number(a), Key::Number(b)) => a.total_cmp(b),
            (Key::Nothing, Key::Nothing) => return Ordering::Equal,
            (Key::Nothing, _) => return Ordering::Greater,
            (_, Key::Nothing) => return Ordering::Less,
            _ => Ordering::Equal,
        };
        if descending { order.reverse() } else { order }
    }
}
