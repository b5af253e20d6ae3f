//! Following a run: its journal from the first line to the event that ends it, whoever writes it and however often it is
//! restarted.
//!
//! Not here: what a terminal shows of it (`cli::follow`), batches for a screen (`live`).

use crate::engine::Engine;
use protocol::problem::{Code, Outcome, Problem};
use protocol::{Entry, Event};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Pause between two looks at a journal that has nothing new: 20 looks a second, as often as a screen is drawn.
const LOOK: Duration = Duration::from_millis(50);
/// How long a journal may lack its last word after the run's lock was freed: the writer flushes before it lets go.
const LAST_WORD: Duration = Duration::from_millis(500);

impl Engine {
    /// Hands every journal entry of a job to `each`, then waits for more, calling `each(None)` at least 20 times a second;
    /// ends after the event that ends the run, or when `each` returns false. A run whose supervisor is gone ends with an
    /// `Interrupted` that is not in the journal.
    pub fn follow(&mut self, id: &str, each: &mut dyn FnMut(Option<&Entry>) -> bool) -> Outcome<()> {
        let run = self.run_folder(id)?;
        let inode = || std::fs::metadata(run.journal()).map(|status| status.ino()).ok();
        let mut reading = inode();
        let mut reader = store::journal::Reader::open(&run.journal(), 0)?;
        let mut last: Option<Entry> = None;
        let mut free_since: Option<Instant> = None;
        loop {
            while let Some((entry, _)) = reader.next()? {
                // A journal that was copied back to its place is read again up to what is known of it.
                if last.as_ref().is_some_and(|last| entry.sequence <= last.sequence) {
                    continue;
                }
                let go_on = each(Some(&entry));
                last = Some(entry);
                free_since = None;
                if !go_on {
                    return Ok(());
                }
            }
            let there = inode();
            if there.is_some() && there != reading {
                (reading, reader) = (there, store::journal::Reader::open(&run.journal(), 0)?);
                continue;
            }
            if run.is_held()? {
                free_since = None;
            } else if free_since.get_or_insert_with(Instant::now).elapsed() >= LAST_WORD {
                if let Some(word) = word_of_a_lost(id, last) {
                    each(Some(&word));
                }
                return Ok(());
            } else if last.as_ref().is_some_and(|e| e.event.ends()) {
                return Ok(());
            }
            if !each(None) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// What a run that nobody owns any more could not say itself; nothing where its last entry is an end.
pub(crate) fn word_of_a_lost(id: &str, last: Option<Entry>) -> Option<Entry> {
    let problem = lost(id);
    let Some(last) = last else {
        let event = Event::Interrupted { step: 0, problem };
        return Some(Entry { sequence: 1, attempt: 0, at_ms: 0, job: id.into(), event });
    };
    let event = Event::Interrupted { step: last.event.step(), problem };
    (!last.event.ends()).then(|| Entry { sequence: last.sequence + 1, event, ..last })
}

fn lost(id: &str) -> Problem {
    Problem::new(Code::SupervisorLost, "supervisor lost")
        .why("the process that watched this job is gone")
        .kept("every checkpoint and the journal")
        .remedy(format!("go on with: anneal resume {id}"))
}
