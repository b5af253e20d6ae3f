//! Which samples share a row: best fit, longest first (Johnson 1974), never splitting a sample.

use std::collections::BTreeMap;

/// Samples in the order they are written, and how many of them each row takes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rows {
    pub order: Vec<u32>,
    pub samples: Vec<u32>,
}

/// One sample a row, in the order they came.
pub(super) fn apart(samples: usize) -> Rows {
    Rows { order: (0..samples as u32).collect(), samples: vec![1; samples] }
}

/// Rows of at most `capacity` tokens. The longest sample goes first; each goes into the row it fills best, the newest of
/// equals, or into a new one. Rows are then put in the order of their first samples, samples in the order they came, so
/// the result depends on the lengths alone.
pub(super) fn together(lengths: &[u32], capacity: u32) -> Rows {
    let mut by_length: Vec<u32> = (0..lengths.len() as u32).collect();
    by_length.sort_by_key(|i| std::cmp::Reverse(lengths[*i as usize]));
    let mut row_of = vec![0u32; lengths.len()];
    let mut room: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut rows = 0;
    for i in by_length {
        let length = lengths[i as usize];
        let (row, left) = take_best(&mut room, length).unwrap_or_else(|| {
            rows += 1;
            (rows - 1, capacity)
        });
        row_of[i as usize] = row;
        room.entry(left - length.min(left)).or_default().push(row);
    }
    in_order(&row_of, rows as usize)
}

/// The row with the least room that is enough, and that room.
fn take_best(room: &mut BTreeMap<u32, Vec<u32>>, length: u32) -> Option<(u32, u32)> {
    let (&left, rows) = room.range_mut(length..).next()?;
    let row = rows.pop()?;
    if rows.is_empty() {
        room.remove(&left);
    }
    Some((row, left))
}

fn in_order(row_of: &[u32], rows: usize) -> Rows {
    // Rows are numbered anew by their first sample.
    let mut number = vec![u32::MAX; rows];
    let mut samples = Vec::with_capacity(rows);
    for row in row_of {
        let slot = &mut number[*row as usize];
        if *slot == u32::MAX {
            *slot = samples.len() as u32;
            samples.push(0);
        }
        samples[*slot as usize] += 1;
    }
    let mut order: Vec<u32> = (0..row_of.len() as u32).collect();
    order.sort_by_key(|i| (number[row_of[*i as usize] as usize], *i));
    Rows { order, samples }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_samples_fill_the_room_that_long_ones_leave() {
        let rows = together(&[6, 3, 5, 4, 2], 10);
        assert_eq!(rows, Rows { order: vec![0, 3, 1, 2, 4], samples: vec![2, 3] });
        assert_eq!(together(&[], 10), Rows::default());
        assert_eq!(apart(2), Rows { order: vec![0, 1], samples: vec![1, 1] });
    }

    proptest! {
        #[test]
        fn every_sample_is_in_one_row_and_no_row_is_too_long(lengths in prop::collection::vec(1u32..=50, 0..300)) {
            let rows = together(&lengths, 50);
            let mut seen = rows.order.clone();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len() as u32).collect::<Vec<_>>());
            let mut at = 0;
            for n in &rows.samples {
                let row = &rows.order[at..at + *n as usize];
                prop_assert!(row.iter().map(|i| lengths[*i as usize]).sum::<u32>() <= 50);
                prop_assert!(row.is_sorted());
                at += *n as usize;
            }
            // At most one row is half empty: two such would have been one.
            let half = rows.samples.len();
            prop_assert!(half <= 2 * lengths.iter().sum::<u32>().div_ceil(50) as usize + 1);
        }
    }
}
