//! Which rows a step takes: a permutation for each epoch, a function of seed and epoch alone.
//!
//! The permutation is a balanced Feistel network over the smallest power of four that holds all rows, walked until it lands
//! below the number of rows (Black & Rogaway 2002). It needs no memory and gives any position at once, so a resumed run
//! goes on at its position without replaying anything, and each row comes exactly once an epoch.

use crate::random::{self, Purpose};

/// Rounds of the network; four make it a pseudo-random permutation (Luby & Rackoff 1988), two more cost nothing here.
const ROUNDS: u64 = 6;

/// The order of `rows` rows under a seed.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    rows: u64,
    seed: u64,
}

impl Order {
    /// An order of `rows` (at least 1) rows.
    pub fn new(rows: u64, seed: u64) -> Order {
        Order { rows: rows.max(1), seed }
    }

    /// The row at position `position` of the run, counted over all epochs.
    pub fn row(&self, position: u64) -> u64 {
        let (epoch, place) = (position / self.rows, position % self.rows);
        let half = self.half_bits();
        let mut at = place;
        loop {
            at = self.feistel(at, epoch, half);
            if at < self.rows {
                return at;
            }
        }
    }

    /// Half the bits of the network's domain, at least 1: 4^half >= rows, so the walk takes 4 passes on average at most.
    fn half_bits(&self) -> u32 {
        let bits = u64::BITS - (self.rows - 1).leading_zeros();
        bits.div_ceil(2).max(1)
    }

    fn feistel(&self, at: u64, epoch: u64, half: u32) -> u64 {
        let mask = (1u64 << half) - 1;
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 0..ROUNDS {
            let next = left ^ (random::bits(self.seed, Purpose::Order, &[epoch, round, right]) & mask);
            (left, right) = (right, next);
        }
        left << half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_comes_once_an_epoch_whatever_their_number() {
        for rows in [1, 2, 3, 4, 5, 16, 17, 100, 1000] {
            let order = Order::new(rows, 3);
            for epoch in 0..3 {
                let mut seen: Vec<u64> = (0..rows).map(|i| order.row(epoch * rows + i)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..rows).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn epochs_and_seeds_have_orders_of_their_own() {
        let order =
            |seed: u64, epoch: u64| (0..50).map(|i| Order::new(50, seed).row(epoch * 50 + i)).collect::<Vec<_>>();
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(2, 0));
        assert_ne!(order(1, 0), (0..50).collect::<Vec<_>>());
        assert_eq!(order(1, 1), order(1, 1));
    }
}
