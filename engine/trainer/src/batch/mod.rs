//! Rows of tokens become micro-batches: which rows a step takes, how they are padded, and what counts as a target.
//!
//! * `order.rs`: the permutation of an epoch. The row of step s (from 0), place i is at position s × global_batch + i of
//!   the run; epoch = position / rows. The last step takes what is left.
//! * Labels are shifted inside segments: position j predicts token j + 1 of the same segment. A segment's first token is
//!   never a target, padding never is, and nothing is predicted across a segment's end.
//! * Data-parallel ranks take micro-batches in turn: micro-batch m of rank r covers the places
//!   (m × ranks + r) × micro_batch and on, so the union over ranks is the same for every layout.
//!
//! Not here: making rows from samples (`formats::tokens`), moving them to the device (`model`).

mod order;

pub use order::Order;

use formats::tokens::TokenSet;
use protocol::plan::PlannedRun;
use protocol::{Code, Outcome, Problem};

/// Marks a position that predicts nothing; the loss kernel knows it.
pub const IGNORE: u32 = kernels::cross_entropy::IGNORE;

/// One row: whole samples one after the other, isolated from each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Token ids.
    pub tokens: &'a [u32],
    /// 1 where the loss counts predicting this token, else 0; as long as `tokens`.
    pub trained: &'a [u8],
    /// Lengths of the row's samples; their sum is `tokens.len()`.
    pub segments: &'a [u32],
}

/// Rows to train or evaluate on.
pub trait RowSource {
    /// Number of rows.
    fn rows(&self) -> u64;
    /// Row `index` of `0..rows()`.
    fn row(&self, index: u64) -> Row<'_>;
}

impl RowSource for TokenSet {
    fn rows(&self) -> u64 {
        TokenSet::rows(self) as u64
    }

    fn row(&self, index: u64) -> Row<'_> {
        let row = TokenSet::row(self, index as usize);
        Row { tokens: row.tokens, trained: row.trained, segments: row.segments }
    }
}

impl Row<'_> {
    /// Tokens that carry loss.
    pub fn targets(&self) -> u64 {
        let mut start = 0;
        let mut targets = 0;
        for length in self.segments.iter().map(|l| *l as usize) {
            let inner = self.trained.get(start + 1..start + length).unwrap_or(&[]);
            targets += inner.iter().filter(|t| **t != 0).count() as u64;
            start += length;
        }
        targets
    }

    /// Refuses a row that the rest of this file could not trust.
    fn check(&self, longest: usize, row: u64) -> Outcome<()> {
        let segments: u64 = self.segments.iter().map(|l| u64::from(*l)).sum();
        let length = self.tokens.len();
        if length <= longest && self.trained.len() == length && segments == length as u64 {
            return Ok(());
        }
        let what = format!(
            "a row of the token cache has {length} tokens, {} marks and segments of {segments}; at most {longest} fit",
            self.trained.len()
        );
        Err(Problem::new(Code::DataChanged, what)
            .row(row + 1)
            .remedy("start the job again: its token cache is made anew"))
    }
}

/// The positions of the run that step `step` (from 0) takes.
pub fn positions(run: &PlannedRun, step: u64) -> std::ops::Range<u64> {
    let batch = u64::from(run.global_batch);
    let start = step.saturating_mul(batch).min(run.rows_total);
    start..start.saturating_add(batch).min(run.rows_total)
}

/// The part of `positions` that rank `rank` of `ranks` takes, cut into micro-batches.
pub fn micro_batches(
    positions: std::ops::Range<u64>,
    micro_batch: u32,
    rank: u32,
    ranks: u32,
) -> impl Iterator<Item = std::ops::Range<u64>> {
    let size = u64::from(micro_batch.max(1));
    let stride = (size * u64::from(ranks.max(1))) as usize;
    let first = positions.start + u64::from(rank) * size;
    let end = positions.end;
    (first..end).step_by(stride).map(move |start| start..(start + size).min(end))
}

/// Rows padded to the longest of them, ready for the device. Reused from micro-batch to micro-batch: it never holds more
/// than micro_batch × max_length positions.
#[derive(Debug, Default)]
pub struct MicroBatch {
    /// Rows: B.
    pub rows: usize,
    /// Padded length of a row: T.
    pub length: usize,
    /// Token ids [B × T]; 0 where padded.
    pub tokens: Vec<u32>,
    /// Position in the segment [B × T]; 0 where padded.
    pub positions: Vec<u32>,
    /// Place in the row where the segment starts [B × T]; padding is alone in a segment of its own.
    pub segment_starts: Vec<u32>,
    /// The token to predict, or [`IGNORE`] [B × T].
    pub targets: Vec<u32>,
    /// What tells the rows apart for randomness [B]: their positions in the run.
    pub samples: Vec<u64>,
}

impl MicroBatch {
    /// Takes these rows (each with what tells it apart), at most `longest` tokens long.
    pub fn fill<'a>(&mut self, rows: impl Iterator<Item = (u64, Row<'a>)> + Clone, longest: usize) -> Outcome<()> {
        self.rows = 0;
        self.length = rows.clone().map(|(_, r)| r.tokens.len()).max().unwrap_or(0).max(1);
        for vec in [&mut self.tokens, &mut self.positions, &mut self.segment_starts, &mut self.targets] {
            vec.clear();
        }
        self.samples.clear();
        for (sample, row) in rows {
            row.check(longest, sample)?;
            self.push(sample, &row);
        }
        Ok(())
    }

    /// Positions: B × T.
    pub fn places(&self) -> usize {
        self.rows * self.length
    }

    fn push(&mut self, sample: u64, row: &Row<'_>) {
        let start = self.places();
        self.rows += 1;
        self.samples.push(sample);
        let mut at = 0u32;
        for length in row.segments {
            self.push_segment(row, at, *length);
            at += length;
        }
        for place in self.tokens.len() - start..self.length {
            self.push_place(0, 0, place as u32, IGNORE);
        }
    }

    fn push_segment(&mut self, row: &Row<'_>, start: u32, length: u32) {
        for j in 0..length {
            let at = (start + j) as usize;
            let predicts = j + 1 < length && row.trained[at + 1] != 0;
            let target = if predicts { row.tokens[at + 1] } else { IGNORE };
            self.push_place(row.tokens[at], j, start, target);
        }
    }

    fn push_place(&mut self, token: u32, position: u32, segment_start: u32, target: u32) {
        self.tokens.push(token);
        self.positions.push(position);
        self.segment_starts.push(segment_start);
        self.targets.push(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row<'static> = Row { tokens: &[5, 6, 7, 8, 9], trained: &[1, 0, 1, 1, 1], segments: &[3, 2] };
    const SHORT: Row<'static> = Row { tokens: &[4, 3], trained: &[0, 1], segments: &[2] };

    #[test]
    fn a_segments_first_token_and_padding_are_never_targets() {
        let mut batch = MicroBatch::default();
        batch.fill([(0, ROW), (1, SHORT)].into_iter(), 5).unwrap();
        let i = IGNORE;
        assert_eq!(batch.targets, [i, 7, i, 9, i, 3, i, i, i, i]);
        assert_eq!(batch.positions, [0, 1, 2, 0, 1, 0, 1, 0, 0, 0]);
        assert_eq!(batch.segment_starts, [0, 0, 0, 3, 3, 0, 0, 2, 3, 4]);
        assert_eq!(batch.tokens, [5, 6, 7, 8, 9, 4, 3, 0, 0, 0]);
        assert_eq!((ROW.targets(), SHORT.targets()), (2, 1));
    }

    #[test]
    fn the_last_step_takes_what_is_left() {
        let run = PlannedRun { steps: 3, global_batch: 4, rows_total: 10, seed: 1, evaluate_every: 0 };
        assert_eq!(positions(&run, 0), 0..4);
        assert_eq!(positions(&run, 2), 8..10);
        assert_eq!(positions(&run, 9), 10..10);
    }

    #[test]
    fn ranks_together_take_each_row_once() {
        let mut taken: Vec<u64> = (0..3).flat_map(|rank| micro_batches(7..30, 4, rank, 3).flatten()).collect();
        taken.sort_unstable();
        assert_eq!(taken, (7..30).collect::<Vec<_>>());
        assert_eq!(micro_batches(0..10, 4, 0, 1).collect::<Vec<_>>(), [0..4, 4..8, 8..10]);
    }

    #[test]
    fn a_row_that_contradicts_itself_is_refused() {
        let mut batch = MicroBatch::default();
        let long = Row { tokens: &[1, 2], trained: &[1, 1], segments: &[3] };
        assert_eq!(batch.fill([(6, long)].into_iter(), 5).unwrap_err().place.row, Some(7));
        assert!(batch.fill([(0, ROW)].into_iter(), 4).is_err());
    }
}
