//! What a reader of a journal can rely on, whatever happened to the file.

use super::writer::{Displaced, Sink};
use super::*;
use proptest::prelude::*;
use protocol::event::Step;
use protocol::{Code, Event, Problem, limits};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

fn step(step: u64) -> Event {
    Event::Step(Step {
        step,
        loss: 1.0 / (step as f64 + 0.1),
        grad_norm: 0.731_234_567_8,
        learning_rate: 2e-4,
        targets: 4096,
        tokens: step * 8192,
        epoch: step as f64 / 77.0,
        step_ms: 12.345_678,
        tokens_per_second: 663_551.234,
    })
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    (folder, path)
}

/// Writes `n` step events; the offset after each line, beginning with 0.
fn fill(path: &Path, n: u64) -> Vec<u64> {
    let mut writer = Writer::open(path, "job").unwrap();
    let mut ends = vec![0];
    for i in 1..=n {
        writer.append(1, i as i64, step(i)).unwrap();
        writer.flush().unwrap();
        ends.push(std::fs::metadata(path).unwrap().len());
    }
    writer.sync().unwrap();
    ends
}

fn sequences(path: &Path) -> (Vec<u64>, u64) {
    let mut reader = Reader::open(path, 0).unwrap();
    let mut found = Vec::new();
    while let Some((entry, _)) = reader.next().unwrap() {
        assert_eq!(entry.event, step(entry.event.step()), "what is read is what was written");
        found.push(entry.sequence);
    }
    (found, reader.damaged())
}

#[test]
fn every_event_comes_back_in_order_and_a_new_writer_goes_on() {
    let (_folder, path) = place();
    let ends = fill(&path, 5);
    let mut writer = Writer::open(&path, "job").unwrap();
    assert_eq!((writer.cut_bytes(), writer.last().unwrap().sequence), (0, 5));
    let problem = Problem::new(Code::TrainerDied, "it \"died\"\n\u{2028}").why("ü");
    let entry = writer.append(2, -1, Event::Restarted { step: 3, why: problem }).unwrap();
    assert_eq!((entry.sequence, entry.attempt), (6, 2));
    drop(writer);
    let mut reader = Reader::open(&path, ends[5]).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().0, entry);
    assert_eq!(reader.next().unwrap(), None);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_reader_follows_a_growing_journal_and_resumes_from_its_offset() {
    let (_folder, path) = place();
    let mut writer = Writer::open(&path, "job").unwrap();
    let mut reader = Reader::open(&path, 0).unwrap();
    assert_eq!(reader.next().unwrap(), None);
    for i in 1..=300 {
        writer.append(1, 0, step(i)).unwrap();
        assert_eq!(reader.next().unwrap(), None, "not yet flushed");
        writer.flush().unwrap();
        if i % 7 == 0 {
            reader = Reader::open(&path, reader.offset()).unwrap();
        }
        assert_eq!(reader.next().unwrap().unwrap().0.sequence, i);
    }
}

#[test]
fn a_line_is_only_read_when_all_of_it_is_there() {
    let (folder, path) = place();
    let ends = fill(&path, 2);
    let bytes = std::fs::read(&path).unwrap();
    let slow = folder.path().join("slow");
    std::fs::write(&slow, &bytes[..ends[1] as usize]).unwrap();
    let mut reader = Reader::open(&slow, 0).unwrap();
    reader.next().unwrap().unwrap();
    for n in ends[1]..ends[2] {
        std::fs::write(&slow, &bytes[..n as usize]).unwrap();
        assert_eq!(reader.next().unwrap(), None);
    }
    std::fs::write(&slow, &bytes).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().0.sequence, 2);
}

#[test]
fn a_journal_cut_at_any_byte_keeps_every_whole_line() {
    let (folder, path) = place();
    let ends = fill(&path, 4);
    let bytes = std::fs::read(&path).unwrap();
    let torn = folder.path().join("torn");
    for n in 0..=bytes.len() {
        std::fs::write(&torn, &bytes[..n]).unwrap();
        let whole = ends.iter().filter(|&&end| end > 0 && end <= n as u64).count() as u64;
        let mut writer = Writer::open(&torn, "job").unwrap();
        assert_eq!(writer.cut_bytes(), n as u64 - ends[whole as usize]);
        assert_eq!(writer.append(1, 0, step(9)).unwrap().sequence, whole + 1);
        drop(writer);
        assert_eq!(sequences(&torn), ((1..=whole + 1).collect(), 0));
    }
}

#[test]
fn a_damaged_line_in_the_middle_costs_that_line_only() {
    let (_folder, path) = place();
    let ends = fill(&path, 50);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[ends[20] as usize + 40] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let expected: Vec<u64> = (1..=50).filter(|&i| i != 21).collect();
    assert_eq!(sequences(&path), (expected, 1));
    let mut writer = Writer::open(&path, "job").unwrap();
    assert_eq!((writer.cut_bytes(), writer.append(1, 0, step(51)).unwrap().sequence), (0, 51));
}

#[test]
fn a_damaged_end_is_read_again_after_the_writer_cut_it() {
    let (_folder, path) = place();
    let ends = fill(&path, 3);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[ends[2] as usize + 9] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let mut reader = Reader::open(&path, ends[1]).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().0.sequence, 2);
    assert_eq!(reader.next().unwrap(), None);
    let mut writer = Writer::open(&path, "job").unwrap();
    assert_eq!(writer.cut_bytes(), ends[3] - ends[2]);
    writer.append(1, 0, Event::Paused { step: 2 }).unwrap();
    drop(writer);
    assert_eq!(reader.next().unwrap().unwrap().0.event, Event::Paused { step: 2 });
    assert_eq!(reader.damaged(), 0);
}

#[test]
fn endless_lines_and_zeros_are_passed_in_bounded_memory() {
    let (_folder, path) = place();
    let ends = fill(&path, 2);
    let good = std::fs::read(&path).unwrap();
    let (first, second) = good.split_at(ends[1] as usize);
    let file = [first, &vec![b'x'; 3_000_000], b"\n", second, &vec![0; 900_000]].concat();
    std::fs::write(&path, &file).unwrap();
    assert_eq!(sequences(&path), (vec![1, 2], 1));
    let mut reader = Reader::open(&path, 0).unwrap();
    while reader.next().unwrap().is_some() {}
    assert!(reader.next().unwrap().is_none());
    assert_eq!(Writer::open(&path, "job").unwrap().cut_bytes(), 900_000);
    assert_eq!(sequences(&path), (vec![1, 2], 1));
}

#[test]
fn a_file_that_is_no_journal_is_left_alone() {
    let (_folder, path) = place();
    std::fs::write(&path, vec![b'\n'; 5_000_000]).unwrap();
    assert_eq!(Writer::open(&path, "job").map(|_| ()).unwrap_err().code, Code::FileMalformed);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 5_000_000);
    std::os::unix::fs::symlink("/etc/hostname", path.with_extension("link")).unwrap();
    assert!(Writer::open(&path.with_extension("link"), "job").is_err());
}

#[test]
fn an_offset_of_another_journal_is_noticed() {
    let (_folder, path) = place();
    let ends = fill(&path, 3);
    for offset in [1, ends[1] - 1, ends[1] + 1, ends[3] + 1, u64::MAX] {
        assert_eq!(Reader::open(&path, offset).map(|_| ()).unwrap_err().code, Code::FileTruncated, "{offset}");
    }
    let mut reader = Reader::open(&path, ends[3]).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(ends[1]).unwrap();
    assert_eq!(reader.next().unwrap_err().code, Code::FileTruncated);
}

#[test]
fn what_cannot_be_journaled_is_refused_and_leaves_no_gap() {
    let (_folder, path) = place();
    let mut writer = Writer::open(&path, "job").unwrap();
    let mut nan = step(1);
    if let Event::Step(step) = &mut nan {
        step.loss = f64::NAN;
    }
    assert_eq!(writer.append(1, 0, nan).unwrap_err().code, Code::NotFinite);
    let long = Problem::new(Code::Internal, "x".repeat(limits::JOURNAL_LINE_BYTES));
    assert_eq!(writer.append(1, 0, Event::Warning { step: 1, problem: long }).unwrap_err().code, Code::TooLarge);
    assert_eq!(writer.append(1, 0, step(1)).unwrap().sequence, 1);
    drop(writer);
    assert_eq!(sequences(&path), (vec![1], 0));
}

/// A file whose calls fail on request, with the cache of a kernel that drops what an fsync failed to write.
#[derive(Clone, Default)]
struct Moody(Arc<Mutex<MoodyFile>>);

#[derive(Default)]
struct MoodyFile {
    cache: Vec<u8>,
    dirty: Vec<bool>,
    platter: Vec<u8>,
    full_after: Option<usize>,
    fail_sync: bool,
}

impl Sink for Moody {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut file = self.0.lock().unwrap();
        let n = file.full_after.map_or(bytes.len(), |most| most.min(bytes.len()));
        let end = offset as usize + n;
        let length = file.cache.len().max(end);
        file.cache.resize(length, 0);
        file.dirty.resize(length, false);
        file.cache[offset as usize..end].copy_from_slice(&bytes[..n]);
        file.dirty[offset as usize..end].fill(true);
        if n < bytes.len() { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut file = self.0.lock().unwrap();
        let MoodyFile { cache, dirty, platter, fail_sync, .. } = &mut *file;
        platter.resize(cache.len(), 0);
        for (i, dirty) in dirty.iter_mut().enumerate().filter(|(_, dirty)| **dirty) {
            *dirty = false;
            if !*fail_sync {
                platter[i] = cache[i];
            }
        }
        if *fail_sync { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn keep_place(&mut self, _path: &Path) -> io::Result<Option<Displaced>> {
        Ok(None)
    }
}

#[test]
fn a_journal_deleted_or_replaced_under_its_writer_is_there_again_with_every_line() {
    let (_folder, path) = place();
    let mut writer = Writer::open(&path, "job").unwrap();
    writer.append(1, 0, step(1)).unwrap();
    writer.sync().unwrap();
    assert_eq!(writer.notice(), None);
    std::fs::remove_file(&path).unwrap();
    writer.append(1, 0, step(2)).unwrap();
    // Written into a file that has no name any more, before anyone looks.
    writer.flush().unwrap();
    writer.append(1, 0, step(3)).unwrap();
    writer.sync().unwrap();
    assert_eq!(sequences(&path), (vec![1, 2, 3], 0));
    let notice = writer.notice().unwrap();
    assert!(notice.what.contains("deleted") && notice.kept.contains("every line"), "{notice}");
    std::fs::rename(&path, path.with_extension("old")).unwrap();
    std::fs::write(&path, "mine\n").unwrap();
    writer.append(1, 0, step(4)).unwrap();
    writer.sync().unwrap();
    assert_eq!(sequences(&path), (vec![1, 2, 3, 4], 0));
    assert!(writer.notice().unwrap().what.contains("replaced"));
    assert_eq!(std::fs::read(path.with_extension("jsonl.replaced")).unwrap(), b"mine\n");
}

#[test]
fn a_failed_fsync_is_made_good_by_writing_anew() {
    let moody = Moody::default();
    let mut writer = Writer::onto(Box::new(moody.clone()), Path::new("/j"), "job", None);
    writer.append(1, 0, step(1)).unwrap();
    moody.0.lock().unwrap().fail_sync = true;
    assert_eq!(writer.sync().unwrap_err().code, Code::DiskFailed);
    writer.append(1, 0, step(2)).unwrap();
    moody.0.lock().unwrap().fail_sync = false;
    writer.sync().unwrap();
    let file = moody.0.lock().unwrap();
    assert_eq!(file.platter, file.cache, "all of it reached the platter");
    assert_eq!(file.platter.split(|&b| b == b'\n').filter_map(entry_of).count(), 2);
}

#[test]
fn a_full_disk_loses_no_event_and_bounds_what_waits() {
    let moody = Moody::default();
    let mut writer = Writer::onto(Box::new(moody.clone()), Path::new("/j"), "job", None);
    moody.0.lock().unwrap().full_after = Some(100);
    let mut taken = 0;
    let problem = loop {
        match writer.append(1, 0, step(taken + 1)) {
            Ok(_) => taken += 1,
            Err(problem) => break problem,
        }
        assert!(taken < 100_000, "what waits must be bounded");
        if taken % 500 == 0 {
            assert_eq!(writer.flush().unwrap_err().code, Code::DiskFull);
        }
    };
    assert_eq!(problem.code, Code::DiskFull);
    moody.0.lock().unwrap().full_after = None;
    writer.append(1, 0, step(taken + 1)).unwrap();
    writer.sync().unwrap();
    let file = moody.0.lock().unwrap();
    let found: Vec<u64> = file.platter.split(|&b| b == b'\n').filter_map(entry_of).map(|e| e.sequence).collect();
    assert_eq!(found, (1..=taken + 1).collect::<Vec<u64>>());
}

/// Prints how fast events are journaled and read back; 10,000 a second is what a run may produce.
#[test]
fn ten_thousand_events_a_second_cost_little() {
    const EVENTS: u64 = 100_000;
    let (_folder, path) = place();
    let mut writer = Writer::open(&path, "20261130-150312-k3f9").unwrap();
    let start = Instant::now();
    for i in 1..=EVENTS {
        writer.append(1, i as i64, step(i)).unwrap();
        if i % 100 == 0 {
            writer.flush().unwrap();
        }
        if i % 10_000 == 0 {
            writer.sync().unwrap();
        }
    }
    let write = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let (found, damaged) = sequences(&path);
    let read = start.elapsed().as_secs_f64();
    assert_eq!((found.len() as u64, damaged), (EVENTS, 0));
    println!("journal: {:.0} events/s written, {:.0} read", EVENTS as f64 / write, EVENTS as f64 / read);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Flip any bit, then cut anywhere: every untouched whole line is read, no wrong one ever is, and a writer goes on.
    #[test]
    fn whatever_is_damaged_the_rest_is_read(bit in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>()) {
        let (_folder, path) = place();
        let ends = fill(&path, 8);
        let mut bytes = std::fs::read(&path).unwrap();
        let (bit, cut) = (bit.index(bytes.len() * 8), cut.index(bytes.len() + 1));
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let hit = ends.iter().position(|&end| end > bit as u64 / 8).unwrap() as u64;
        // The flip of a newline joins two lines.
        let joined = (ends[hit as usize] - 1 == bit as u64 / 8).then_some(hit + 1);
        let whole: Vec<u64> = (1..=8)
            .filter(|&i| ends[i as usize] <= cut as u64 && i != hit && Some(i) != joined)
            .collect();
        prop_assert_eq!(&sequences(&path).0, &whole);
        let mut writer = Writer::open(&path, "job").unwrap();
        let next = writer.append(1, 0, step(99)).unwrap().sequence;
        prop_assert_eq!(next, whole.last().copied().unwrap_or(0) + 1);
        drop(writer);
        prop_assert_eq!(sequences(&path).0, [whole, vec![next]].concat());
    }
}
