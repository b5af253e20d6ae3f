//! The threads of a device: every piece of work exactly once, whichever thread takes it.
//!
//! The pieces are fixed by the operation and never by the number of threads, which is what keeps results equal.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Operations below which one thread is done before a second is awake: some ten microseconds of either.
const WORTH_WAKING: usize = 1 << 18;

/// A pool of its own; the process-wide rayon pool is never started.
#[derive(Debug)]
pub(crate) struct Team {
    pool: Option<rayon::ThreadPool>,
    scratch: Mutex<Vec<f32>>,
}

impl Team {
    pub(crate) fn new(threads: usize) -> Team {
        let build =
            |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("anneal-cpu-{i}"));
        let pool = (threads > 1).then(|| build(threads).build());
        match pool.transpose() {
            Ok(pool) => Team { pool, scratch: Mutex::default() },
            Err(error) => panic!("no {threads} threads for a device: {error}"),
        }
    }

    /// These threads, or the caller's alone where `operations` are so few that waking others would take longer.
    pub(crate) fn for_work(&self, operations: usize) -> Crew<'_> {
        Crew { pool: self.pool.as_ref().filter(|_| operations >= WORTH_WAKING) }
    }

    pub(crate) fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, rayon::ThreadPool::current_num_threads)
    }

    /// Runs `work(i)` for every i below `pieces`.
    pub(crate) fn each(&self, pieces: usize, work: impl Fn(usize) + Sync) {
        self.for_work(usize::MAX).each_with(pieces, || (), |(), i| work(i));
    }

    /// Lends `len` elements of scratch, with whatever they hold, to one caller at a time. It is kept for the next one.
    pub(crate) fn scratch(&self, len: usize, work: impl FnOnce(&mut [f32])) {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.len() < len {
            scratch.resize(len, 0.0);
        }
        work(&mut scratch[..len]);
    }

    /// Cuts each of `outs` into pieces of its size and runs `work(i, pieces)` on the i-th pieces of all of them.
    ///
    /// # Panics
    /// When the outs do not have the same number of pieces.
    pub(crate) fn split<T: Send, const W: usize>(
        &self,
        outs: [&mut [T]; W],
        sizes: [usize; W],
        work: impl Fn(usize, [&mut [T]; W]) + Sync,
    ) {
        let pieces = outs[0].len().div_ceil(sizes[0]);
        let agree = outs.iter().zip(sizes).all(|(out, size)| out.len().div_ceil(size) == pieces);
        assert!(agree, "pieces of {sizes:?} do not line up");
        let shared = outs.map(Shared::new);
        self.each(pieces, |i| {
            let mut at = 0;
            // SAFETY: `each` hands every i out once and pieces of different i are disjoint.
            let mine = shared.each_ref().map(|out| unsafe {
                let size = sizes[at];
                at += 1;
                out.slice(i * size, (i * size + size).min(out.len))
            });
            work(i, mine);
        });
    }
}

/// The threads that take part in one operation.
#[derive(Clone, Copy)]
pub(crate) struct Crew<'a> {
    pool: Option<&'a rayon::ThreadPool>,
}

impl Crew<'_> {
    /// As [`Team::each`], with scratch that each thread makes for itself.
    pub(crate) fn each_with<S>(
        &self,
        pieces: usize,
        scratch: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, usize) + Sync,
    ) {
        let next = AtomicUsize::new(0);
        let take = || {
            let mut mine = scratch();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= pieces {
                    return;
                }
                work(&mut mine, i);
            }
        };
        match self.pool {
            Some(pool) if pieces > 1 => drop(pool.broadcast(|_| take())),
            _ => take(),
        }
    }
}

/// A slice that several threads write to, each its own part.
pub(crate) struct Shared<'a, T> {
    base: *mut T,
    pub(crate) len: usize,
    lives: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: only a pointer; whoever makes slices of it promises that they are disjoint.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Shared { base: slice.as_mut_ptr(), len: slice.len(), lives: std::marker::PhantomData }
    }

    /// Where element `start` stands, after a check that `len` elements from there are inside.
    pub(crate) fn base(&self, start: usize, len: usize) -> *mut T {
        assert!(start + len <= self.len, "part of {len} at {start} of {}", self.len);
        self.base.wrapping_add(start)
    }

    /// Elements `start..end`.
    ///
    /// # Safety
    /// No other slice made of this shares an element with it while both live.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(crate) unsafe fn slice(&self, start: usize, end: usize) -> &mut [T] {
        assert!(start <= end && end <= self.len, "part {start}..{end} of {}", self.len);
        // SAFETY: inside the slice this was made of, which is borrowed for 'a; disjoint by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(start), end - start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once_by_any_number_of_threads() {
        for threads in 1..=4 {
            let (team, mut seen) = (Team::new(threads), vec![0u32; 1003]);
            team.split([&mut seen], [10], |i, [piece]| piece.iter_mut().for_each(|x| *x += 1 + i as u32));
            assert!(seen.iter().enumerate().all(|(at, x)| *x == 1 + at as u32 / 10), "{threads} threads");
        }
    }

    #[test]
    fn work_runs_on_threads_of_the_device_alone() {
        let names = Mutex::new(Vec::new());
        let name = || std::thread::current().name().map(str::to_owned);
        Team::new(3).each(300, |_| names.lock().unwrap().push(name()));
        let names = names.into_inner().unwrap();
        assert!(names.iter().flatten().all(|name| name.starts_with("anneal-cpu-")) && names.len() == 300);
    }
}
