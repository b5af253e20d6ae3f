//! What several test modules share.

use std::sync::{Mutex, MutexGuard, PoisonError};

static PROCESSES: Mutex<()> = Mutex::new(());

/// Held by tests that start processes or look at locks: a child started by one would inherit what another just made
/// inheritable.
pub fn alone() -> MutexGuard<'static, ()> {
    PROCESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A source of numbers that look random and are the same in every run (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Heads or tails.
    pub fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}
