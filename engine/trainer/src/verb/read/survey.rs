//! Lengths of all records of a training set, for a histogram.

use protocol::limits::LENGTH_BINS;
use protocol::look::{LengthBin, Survey};

/// Steps of a bin's border for each doubling of the length: lengths differ by factors, not by amounts.
const STEPS: f64 = 3.0;

/// Counts lengths.
#[derive(Default)]
pub struct Lengths {
    /// Records by `bin`.
    bins: Vec<u64>,
    survey: Survey,
}

impl Lengths {
    /// Counts a record; `most` is the limit in tokens, `learnt` tells that it is not left out.
    pub fn add(&mut self, row: u64, length: u64, most: u64, learnt: bool) {
        let bin = bin(length);
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += 1;
        self.survey.too_long += u64::from(length > most);
        if self.survey.longest.is_none_or(|(_, longest)| length > longest) {
            self.survey.longest = Some((row, length));
        }
        if learnt && self.survey.shortest.is_none_or(|(_, shortest)| length < shortest) {
            self.survey.shortest = Some((row, length));
        }
    }

    /// What was counted: the bins from the first to the last that has records.
    pub fn survey(mut self) -> Survey {
        let first = self.bins.iter().position(|n| *n > 0).unwrap_or(0);
        let used = self.bins.iter().enumerate().skip(first);
        let bins = used.map(|(bin, rows)| LengthBin { from: border(bin), to: border(bin + 1), rows: *rows });
        self.survey.lengths = joined(bins.filter(|bin| bin.from < bin.to).collect());
        self.survey
    }
}

/// No more bins than a histogram has bars: neighbours are joined.
fn joined(bins: Vec<LengthBin>) -> Vec<LengthBin> {
    let n = bins.len().div_ceil(LENGTH_BINS).max(1);
    let join = |part: &[LengthBin]| LengthBin {
        from: part[0].from,
        to: part[part.len() - 1].to,
        rows: part.iter().map(|bin| bin.rows).sum(),
    };
    bins.chunks(n).map(join).collect()
}

/// The bin of a length.
fn bin(length: u64) -> usize {
    let guess = ((length.max(1) as f64).log2() * STEPS) as usize;
    // Borders are whole numbers: the last one that is not above the length.
    (guess.saturating_sub(2)..=guess + 2).rev().find(|bin| border(*bin) <= length).unwrap_or(0)
}

/// The shortest length of a bin.
fn border(bin: usize) -> u64 {
    if bin == 0 { 0 } else { (bin as f64 / STEPS).exp2().round() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_in_the_bin_whose_borders_hold_it() {
        for length in (0..5000).chain([1 << 20, (1 << 24) - 1, 1 << 31]) {
            let mut lengths = Lengths::default();
            lengths.add(1, length, 100, true);
            let survey = lengths.survey();
            let [bin] = survey.lengths[..] else { panic!("{survey:?}") };
            assert!(bin.from <= length && length < bin.to && bin.rows == 1, "{length}: {bin:?}");
        }
    }

    #[test]
    fn bins_are_as_many_as_bars_and_hold_all_records() {
        let mut lengths = Lengths::default();
        for row in 1..=20_000u64 {
            lengths.add(row, row * row, 1000, row != 1);
        }
        let survey = lengths.survey();
        assert!(
            survey.lengths.len() <= LENGTH_BINS && survey.lengths.len() > LENGTH_BINS / 3,
            "{}",
            survey.lengths.len()
        );
        assert_eq!(survey.lengths.iter().map(|bin| bin.rows).sum::<u64>(), 20_000);
        assert!(survey.lengths.windows(2).all(|pair| pair[0].to == pair[1].from));
        assert_eq!((survey.longest, survey.shortest), (Some((20_000, 400_000_000)), Some((2, 4))));
        assert_eq!(survey.too_long, 20_000 - 31);
    }
}
