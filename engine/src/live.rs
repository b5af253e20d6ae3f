//! Following a run from now on, in batches that a screen can draw. The past is the history's (`Engine::curve`).
//!
//! Not here: following from the first line (`follow`), which knows every step.

use crate::engine::Engine;
use crate::follow;
use protocol::problem::Outcome;
use protocol::view::Batch;
use protocol::{Entry, Event, limits};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};
use store::journal::Reader;
use store::run::RunFolder;

/// Between two batches: 20 a second, as often as a screen is drawn.
const BATCH: Duration = Duration::from_millis(50);
/// How long a journal may lack its last word after the run's lock was freed: the writer flushes before it lets go.
const LAST_WORD: Duration = Duration::from_millis(500);
/// The end of a journal that is read to find its last line: a longest line and a line of any length fit.
const TAIL_BYTES: u64 = 4 * limits::JOURNAL_LINE_BYTES as u64;
/// Entries taken in one look: a burst after a long sleep comes in several batches.
const ENTRIES: usize = 4096;

/// A run that is being followed; holds no engine and no history.
pub struct Live {
    run: RunFolder,
    reader: Reader,
    last: Option<Entry>,
    free_since: Option<Instant>,
}

impl Engine {
    /// Begins to follow a job at the end of its journal. Errors: `NotFound`, `FileUnreadable`.
    pub fn live(&self, id: &str) -> Outcome<Live> {
        let run = self.run_folder(id)?;
        let mut reader = Reader::open(&run.journal(), last_lines(&run.journal()))?;
        let mut last = None;
        while let Some((entry, _)) = reader.next()? {
            last = Some(entry);
        }
        Ok(Live { run, reader, last, free_since: None })
    }
}

impl Live {
    /// Hands batches to `each`, the first one empty and at once, until the run has ended or `each` says false. `each` is
    /// also called (with an empty batch) when a second has passed without news, so that a caller can end.
    pub fn run(mut self, each: &mut dyn FnMut(Batch) -> bool) -> Outcome<()> {
        let mut quiet_since: Option<Instant> = None;
        loop {
            let batch = self.look()?;
            let news = !batch.entries.is_empty() || batch.ended;
            if news || quiet_since.is_none_or(|since| since.elapsed() >= Duration::from_secs(1)) {
                quiet_since = Some(Instant::now());
                let ended = batch.ended;
                if !each(batch) || ended {
                    return Ok(());
                }
            }
            std::thread::sleep(BATCH);
        }
    }

    fn look(&mut self) -> Outcome<Batch> {
        // Asked before the journal is read: a run that lets go after this has its last word in the next look.
        let held = self.run.is_held()?;
        let mut entries = Vec::new();
        while entries.len() < ENTRIES {
            let Some((entry, _)) = self.reader.next()? else { break };
            self.last = Some(entry.clone());
            entries.push(entry);
        }
        let ended = self.has_ended(held, &mut entries);
        Ok(Batch { entries: thinned(entries), ended })
    }

    /// True where nothing more can come; adds the word that a lost supervisor could not write.
    fn has_ended(&mut self, held: bool, entries: &mut Vec<Entry>) -> bool {
        if held || !entries.is_empty() {
            self.free_since = None;
            return false;
        }
        if self.last.as_ref().is_some_and(|last| last.event.ends()) {
            return true;
        }
        let lost = self.free_since.get_or_insert_with(Instant::now).elapsed() >= LAST_WORD;
        if lost {
            entries.extend(follow::word_of_a_lost(self.run.id(), self.last.take()));
        }
        lost
    }
}

/// Every event that is not a step, and at most `limits::BATCH_STEPS` steps, evenly and the newest among them.
fn thinned(entries: Vec<Entry>) -> Vec<Entry> {
    let steps = entries.iter().filter(|e| matches!(e.event, Event::Step(_))).count();
    let stride = steps.div_ceil(limits::BATCH_STEPS).max(1);
    let mut left = steps;
    let kept = entries.into_iter().filter(|entry| {
        if !matches!(entry.event, Event::Step(_)) {
            return true;
        }
        left -= 1;
        left.is_multiple_of(stride)
    });
    kept.collect()
}

/// Where some line near the end of a journal starts; 0 where it is short or cannot be read.
fn last_lines(journal: &Path) -> u64 {
    let look = || -> std::io::Result<u64> {
        let mut file = File::open(journal)?;
        let from = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.take(TAIL_BYTES).read_to_end(&mut tail)?;
        let line = tail.iter().position(|b| *b == b'\n').map_or(0, |at| from + at as u64 + 1);
        Ok(if from == 0 { 0 } else { line })
    };
    look().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::event::Step;

    fn step(step: u64) -> Entry {
        let event = Event::Step(Step {
            step,
            loss: 1.0,
            grad_norm: 1.0,
            learning_rate: 1.0,
            targets: 1,
            tokens: step,
            epoch: 0.0,
            step_ms: 1.0,
            tokens_per_second: 1.0,
        });
        Entry { sequence: step, attempt: 1, at_ms: 0, job: "j".into(), event }
    }

    #[test]
    fn a_burst_is_thinned_and_keeps_its_newest_step_and_every_other_event() {
        let mut burst: Vec<Entry> = (1..=1000).map(step).collect();
        burst.insert(500, Entry { event: Event::Snapshot { step: 500 }, ..step(500) });
        let kept = thinned(burst);
        let steps: Vec<u64> =
            kept.iter().filter(|e| matches!(e.event, Event::Step(_))).map(|e| e.event.step()).collect();
        assert!(steps.len() <= limits::BATCH_STEPS && steps.len() > 32, "{}", steps.len());
        assert_eq!(steps.last(), Some(&1000));
        assert_eq!(kept.len(), steps.len() + 1);
        assert_eq!(thinned(vec![step(1), step(2)]).len(), 2);
    }

    #[test]
    fn the_last_lines_of_a_long_journal_start_at_a_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "x".repeat(999) + "\n";
        std::fs::write(file.path(), text.repeat(1000)).unwrap();
        let at = last_lines(file.path());
        assert!(at > 0 && at.is_multiple_of(1000), "{at}");
        assert_eq!(last_lines(Path::new("/nowhere")), 0);
    }
}
