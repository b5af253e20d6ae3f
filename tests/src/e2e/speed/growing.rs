//! A run that grows as a supervisor would let it, twenty steps a second: what a million steps look like while one watches
//! cannot be trained in a benchmark.

use engine::history::seed;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use store::home::Home;
use store::journal::Writer;
use store::run::RunFolder;

const BETWEEN: Duration = Duration::from_millis(50);

/// Grows until dropped.
pub struct Growing {
    ended: Arc<AtomicBool>,
    writing: Option<JoinHandle<()>>,
}

impl Growing {
    /// Goes on after `steps`, holding the run's lock.
    pub fn start(home: &Home, id: &str, steps: u64) -> Growing {
        let folder = RunFolder::of(home, id).unwrap();
        let held = store::lock::try_lock(&folder.lock()).unwrap().expect("somebody runs this job");
        let mut journal = Writer::open(&folder.journal(), id).unwrap();
        // Every start takes a ticket: it tells other engines to look.
        std::fs::write(home.queue().join("started"), "").unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&ended);
        let write = move || {
            let _held = held;
            let mut step = steps;
            while !asked.load(Ordering::Relaxed) {
                step += 1;
                seed::write(&mut journal, step, step).unwrap();
                std::thread::sleep(BETWEEN);
            }
        };
        Growing { ended, writing: Some(std::thread::spawn(write)) }
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(writing) = self.writing.take() {
            let _ = writing.join();
        }
    }
}
