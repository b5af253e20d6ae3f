//! Ranks that are processes: they meet in files below `VGPU_DIR`, where a script asks for it with `rank_processes`.
//!
//! A part of a collective is a file of its rank that appears whole; every rank reads all parts and computes its own result.
//! A rank's file of one round is removed once all have reached the next one, and so have read it.

use crate::clock::Nanoseconds;
use crate::collective::{Clique, Communicator, Message, Part, granted_parts};
use crate::memory;
use crate::nvrtc::write_whole;
use crate::state::{code, gpu};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often a waiting rank looks.
const LOOK: Duration = Duration::from_micros(500);

/// The folder in which the ranks of one communicator meet.
pub(crate) struct Files {
    folder: PathBuf,
}

/// A file of a rank: a line of text, the modelled time at which it came, and bytes.
struct Sheet {
    text: String,
    start: Nanoseconds,
    bytes: Vec<u8>,
}

impl Sheet {
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut content = format!("{}\n{}\n", self.text, self.start).into_bytes();
        content.extend_from_slice(&self.bytes);
        write_whole(path, &content)
    }

    fn read(path: &Path) -> Option<Sheet> {
        let content = std::fs::read(path).ok()?;
        let mut parts = content.splitn(3, |byte| *byte == b'\n');
        let text = String::from_utf8_lossy(parts.next()?).into_owned();
        let start = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        Some(Sheet { text, start, bytes: parts.next()?.to_vec() })
    }
}

impl Files {
    pub(crate) fn new(folder: PathBuf) -> Files {
        // Where it cannot be made, joining fails and says so.
        let _ = std::fs::create_dir_all(&folder);
        Files { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Lets a rank in; false where it was already there.
    pub(crate) fn join(&self, rank: usize) -> bool {
        let path = self.path(&format!("rank-{rank}"));
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(_) => true,
            Err(error) => {
                gpu().tell(format!("rank {rank} cannot join in {}: {error}", path.display()));
                false
            }
        }
    }

    /// Whether every rank has a file of this sort.
    fn all(&self, sort: &str, size: usize) -> bool {
        (0..size).all(|rank| self.path(&format!("{sort}-{rank}")).exists())
    }

    pub(crate) fn is_complete(&self, size: usize) -> bool {
        self.all("rank", size)
    }

    pub(crate) fn wait_until_complete(&self, size: usize) {
        while !self.is_complete(size) {
            std::thread::sleep(LOOK);
        }
    }
}

impl Communicator {
    /// Returns true once it is ready, false where the rank gave up first.
    fn look_until(&self, ready: impl Fn() -> bool) -> bool {
        while !ready() {
            if self.gave_up() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Writes a file of this rank; a full disk fails the device, so that nobody waits for ever unnoticed.
    fn leave(&self, path: &Path, sheet: &Sheet) {
        if let Err(error) = sheet.write(path) {
            gpu().tell(format!("cannot write {}: {error}", path.display()));
            gpu().devices[self.device].fail(code::LAUNCH_FAILED);
        }
    }

    /// This rank's part in a collective.
    pub(crate) fn meet_in_files(&self, files: &Files, number: u64, part: Part, start: Nanoseconds) -> Nanoseconds {
        let (size, signature) = (self.clique.size, part.signature);
        let sort = format!("round-{number}");
        let own = files.path(&format!("{sort}-{}", self.rank));
        let bytes = memory::read(part.source, signature.extents(self.rank, size).0);
        self.leave(&own, &Sheet { text: signature.to_string(), start, bytes });
        if !self.look_until(|| files.all(&sort, size)) {
            let _ = std::fs::remove_file(own);
            return start;
        }
        if number > 0 {
            let _ = std::fs::remove_file(files.path(&format!("round-{}-{}", number - 1, self.rank)));
        }
        let path = |rank| files.path(&format!("{sort}-{rank}"));
        let sheets: Vec<Sheet> = (0..size).filter_map(|rank| Sheet::read(&path(rank))).collect();
        if sheets.len() < size {
            self.fail_alone(format!("parts of {} are gone", files.folder.display()));
            return start;
        }
        let first = &sheets[0].text;
        if let Some((rank, other)) = sheets.iter().enumerate().find(|(_, sheet)| sheet.text != *first) {
            self.fail_alone(format!("ranks disagree: rank 0 calls {first}, rank {rank} calls {}", other.text));
            return start;
        }
        let sources: Vec<usize> = sheets.iter().map(|sheet| sheet.bytes.as_ptr() as usize).collect();
        let result = signature.results(&sources).swap_remove(self.rank);
        memory::copy(part.target, result.as_ptr() as usize, result.len());
        let latest = sheets.iter().map(|sheet| sheet.start).max().unwrap_or(start);
        latest + signature.cost(self.device, size)
    }

    fn fail_alone(&self, message: String) {
        gpu().devices[self.device].fail(code::LAUNCH_FAILED);
        gpu().tell(message.clone());
        self.clique.note_failure(message);
    }

    /// Messages that go on at the same time.
    pub(crate) fn deliver_in_files(&self, files: &Files, messages: &[Message], start: Nanoseconds) -> Nanoseconds {
        let letter = |message: &Message| {
            let (from, to) = if message.sends { (self.rank, message.peer) } else { (message.peer, self.rank) };
            files.path(&format!("letter-{from}-{to}-{}", self.next_letter(from, to)))
        };
        let all: Vec<(&Message, PathBuf)> = messages.iter().map(|message| (message, letter(message))).collect();
        for (message, path) in all.iter().filter(|(message, _)| message.sends) {
            let bytes = memory::read(message.address, message.bytes);
            self.leave(path, &Sheet { text: message.bytes.to_string(), start, bytes });
        }
        let mut end = start;
        for (message, path) in all.iter().filter(|(message, _)| !message.sends) {
            if !self.look_until(|| path.exists()) {
                return start;
            }
            end = end.max(self.take_letter(path, message, start));
        }
        // Only now: two ranks that send to each other would else wait for each other.
        for (_, path) in all.iter().filter(|(message, _)| message.sends) {
            if !self.look_until(|| !path.exists()) {
                let _ = std::fs::remove_file(path);
                return start;
            }
        }
        end
    }

    fn take_letter(&self, path: &Path, message: &Message, start: Nanoseconds) -> Nanoseconds {
        let Some(sheet) = Sheet::read(path) else { return start };
        let _ = std::fs::remove_file(path);
        if sheet.bytes.len() == message.bytes {
            memory::copy(message.address, sheet.bytes.as_ptr() as usize, message.bytes);
        } else {
            let (from, to, sent) = (message.peer, self.rank, sheet.bytes.len());
            let wanted = message.bytes;
            self.fail_alone(format!("rank {from} sends {sent} bytes, but rank {to} receives {wanted} bytes from it"));
        }
        start.max(sheet.start) + message.cost(self.device)
    }

    /// Says which part of a split this rank wants to be in.
    pub(crate) fn wish_in_files(&self, files: &Files, number: u64, color: i32, key: i32) {
        let path = files.path(&format!("split-{number}-{}", self.rank));
        self.leave(&path, &Sheet { text: format!("{color} {key}"), start: 0, bytes: Vec::new() });
    }

    /// Waits for a split.
    pub(crate) fn part_of_split_in_files(&self, files: &Files, number: u64) -> Option<(Arc<Clique>, usize)> {
        let sort = format!("split-{number}");
        if !self.look_until(|| files.all(&sort, self.clique.size)) {
            return None;
        }
        let mut wishes = BTreeMap::new();
        for rank in 0..self.clique.size {
            let sheet = Sheet::read(&files.path(&format!("{sort}-{rank}")))?;
            let (color, key) = sheet.text.split_once(' ')?;
            wishes.insert(rank, (color.parse().ok()?, key.parse().ok()?));
        }
        let (color, members) = granted_parts(&wishes).into_iter().find(|(_, members)| members.contains(&self.rank))?;
        let place = members.iter().position(|rank| *rank == self.rank)?;
        let folder = files.folder.with_extension(format!("{number}-{color}"));
        (color >= 0).then(|| (Clique::in_files(members.len(), folder), place))
    }
}
