//! A disk in memory that knows what is pending and what is durable, loses power at any instant, and fails at any call: the
//! test double under everything that is written through [`Disk`].
//!
//! Its promises are the weakest that POSIX allows. Without an fsync of the file, any of a write's 512-byte sectors may be
//! missing after a power cut, in any order; without an fsync of the folder, any of its changes may be missing. After a
//! failed fsync a file's pending bytes can still be read but never become durable, though the next fsync succeeds.
//!
//! Not bounded: it holds every byte written since [`SimulatedDisk::settle`]; a test writes a few megabytes.

use super::{Disk, Listed, Output};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Cursor, Read, Write};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a disk writes in one piece or not at all.
const SECTOR_BYTES: usize = 512;
/// errno of a full disk.
const ENOSPC: i32 = 28;

/// What a failing call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this errno.
    Errno(i32),
    /// It writes half of what it was given and says so; calls that do not write succeed.
    Short,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// As it is on the platter.
    durable: Tree,
    /// As processes see it.
    current: Tree,
    /// What leads from the one to the other, in order.
    log: Vec<Change>,
    calls: u64,
    fault: Option<Planned>,
    capacity: u64,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    at: u64,
    for_ever: bool,
    fault: Fault,
}

/// Files and folders by number; 0 is the root.
type Tree = Vec<Content>;

#[derive(Clone, Debug)]
enum Content {
    File(Vec<u8>),
    Folder(BTreeMap<String, usize>),
}

/// An entry of a folder: the folder's number and the name.
type Slot = (usize, String);

#[derive(Debug)]
enum Change {
    Write { file: usize, offset: usize, bytes: Vec<u8> },
    Enter { at: Slot, number: usize },
    Leave { at: Slot },
    Move { from: Slot, to: Slot, number: usize },
    Synced(usize),
    SyncFailed(usize),
}

impl Default for State {
    fn default() -> State {
        let root = vec![Content::Folder(BTreeMap::new())];
        State { durable: root.clone(), current: root, log: Vec::new(), calls: 0, fault: None, capacity: u64::MAX }
    }
}

impl SimulatedDisk {
    /// An empty disk that takes this many bytes of files.
    pub fn with_capacity(bytes: u64) -> SimulatedDisk {
        let disk = SimulatedDisk::default();
        disk.set_capacity(bytes);
        disk
    }

    /// Changes how many bytes of files the disk takes.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = bytes;
    }

    /// Makes everything durable and forgets how it came about.
    pub fn settle(&self) {
        let mut state = self.lock();
        state.durable = state.current.clone();
        state.log.clear();
    }

    /// Instants since [`SimulatedDisk::settle`] at which the power can fail: 0 is then, the last is now.
    pub fn instants(&self) -> usize {
        self.lock().log.len()
    }

    /// The disk as it comes up after the power failed at an instant. `keep` is asked for each change that was pending
    /// (for each sector of a pending write) whether it reached the platter.
    pub fn after_power_cut(&self, instant: usize, keep: &mut dyn FnMut() -> bool) -> SimulatedDisk {
        let state = self.lock();
        let mut tree = state.durable.clone();
        tree.extend(state.current[tree.len()..].iter().map(Content::emptied));
        let log = &state.log[..instant];
        for (change, durable) in log.iter().zip(durable(log)) {
            change.apply(&mut tree, &mut || durable || keep());
        }
        let state = State { durable: tree.clone(), current: tree, capacity: state.capacity, ..State::default() };
        SimulatedDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Lets the `call`-th call from now (from 1) fail, or that one and all after it.
    pub fn fail(&self, call: u64, for_ever: bool, fault: Fault) {
        let mut state = self.lock();
        state.fault = Some(Planned { at: state.calls + call, for_ever, fault });
    }

    /// No call fails any more.
    pub fn heal(&self) {
        self.lock().fault = None;
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Changes a file's bytes behind everyone's back, as a failing medium does.
    /// Errors: as `open`.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = self.lock();
        let number = find(&state.current, path)?;
        change(file_mut(&mut state.current, number)?);
        state.durable = state.current.clone();
        state.log.clear();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        match state.count_call() {
            Some(Fault::Errno(errno)) => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(state),
        }
    }
}

impl State {
    /// Counts a call and tells how it is to fail.
    fn count_call(&mut self) -> Option<Fault> {
        self.calls += 1;
        let (calls, hit) = (self.calls, |p: &Planned, calls| p.at == calls || p.for_ever && p.at < calls);
        self.fault.filter(|planned| hit(planned, calls)).map(|planned| planned.fault)
    }

    fn used(&self) -> u64 {
        let mut linked = vec![0];
        let mut used = 0;
        while let Some(number) = linked.pop() {
            match &self.current[number] {
                Content::File(bytes) => used += bytes.len() as u64,
                Content::Folder(entries) => linked.extend(entries.values()),
            }
        }
        used
    }

    fn enter(&mut self, path: &Path, content: Content) -> io::Result<usize> {
        let at = slot(&self.current, path)?;
        if folder(&self.current, at.0)?.contains_key(&at.1) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = self.current.len();
        self.current.push(content);
        self.change(Change::Enter { at, number });
        Ok(number)
    }

    fn leave(&mut self, path: &Path) -> io::Result<()> {
        let at = slot(&self.current, path)?;
        self.change(Change::Leave { at });
        Ok(())
    }

    fn relocate(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let number = find(&self.current, from)?;
        let (from, to) = (slot(&self.current, from)?, slot(&self.current, to)?);
        self.change(Change::Move { from, to, number });
        Ok(())
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current, &mut || true);
        self.log.push(change);
    }
}

impl Change {
    /// The file or folder whose fsync makes it durable.
    fn subject(&self) -> usize {
        match self {
            Change::Write { file: number, .. } | Change::Synced(number) | Change::SyncFailed(number) => *number,
            Change::Enter { at, .. } | Change::Leave { at } | Change::Move { to: at, .. } => at.0,
        }
    }

    fn apply(&self, tree: &mut Tree, keep: &mut dyn FnMut() -> bool) {
        match self {
            Change::Write { file, offset, bytes } => write_sectors(tree, *file, *offset, bytes, keep),
            Change::Synced(_) | Change::SyncFailed(_) => {}
            _ if !keep() => {}
            Change::Enter { at, number } => set(tree, at, *number),
            Change::Leave { at } => clear(tree, at, None),
            Change::Move { from, to, number } => {
                clear(tree, from, Some(*number));
                set(tree, to, *number);
            }
        }
    }
}

impl Content {
    fn emptied(&self) -> Content {
        match self {
            Content::File(_) => Content::File(Vec::new()),
            Content::Folder(_) => Content::Folder(BTreeMap::new()),
        }
    }
}

/// For each change, whether an fsync after it made it durable. Read backwards: a failed fsync of a file drops what came
/// before it, whatever comes after.
fn durable(log: &[Change]) -> Vec<bool> {
    let mut synced: HashMap<usize, bool> = HashMap::new();
    let mut durable: Vec<bool> = log
        .iter()
        .rev()
        .map(|change| {
            match change {
                Change::Synced(number) => drop(synced.insert(*number, true)),
                Change::SyncFailed(number) => drop(synced.insert(*number, false)),
                _ => {}
            }
            synced.get(&change.subject()).copied().unwrap_or(false)
        })
        .collect();
    durable.reverse();
    durable
}

fn write_sectors(tree: &mut Tree, file: usize, offset: usize, bytes: &[u8], keep: &mut dyn FnMut() -> bool) {
    let Content::File(content) = &mut tree[file] else { return };
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done;
        let n = (SECTOR_BYTES - at % SECTOR_BYTES).min(bytes.len() - done);
        if keep() {
            content.resize(content.len().max(at + n), 0);
            content[at..at + n].copy_from_slice(&bytes[done..done + n]);
        }
        done += n;
    }
}

fn set(tree: &mut Tree, at: &Slot, number: usize) {
    if let Content::Folder(entries) = &mut tree[at.0] {
        entries.insert(at.1.clone(), number);
    }
}

/// Removes an entry, where it still is `only`.
fn clear(tree: &mut Tree, at: &Slot, only: Option<usize>) {
    if let Content::Folder(entries) = &mut tree[at.0]
        && only.is_none_or(|number| entries.get(&at.1) == Some(&number))
    {
        entries.remove(&at.1);
    }
}

fn find(tree: &Tree, path: &Path) -> io::Result<usize> {
    let mut number = 0;
    for part in path.components() {
        if let Component::Normal(name) = part {
            let entries = folder(tree, number)?;
            number = *entries.get(&*name.to_string_lossy()).ok_or(io::ErrorKind::NotFound)?;
        }
    }
    Ok(number)
}

fn slot(tree: &Tree, path: &Path) -> io::Result<Slot> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok((find(tree, parent)?, name.to_string_lossy().into_owned()))
}

fn folder(tree: &Tree, number: usize) -> io::Result<&BTreeMap<String, usize>> {
    match &tree[number] {
        Content::Folder(entries) => Ok(entries),
        Content::File(_) => Err(io::ErrorKind::NotADirectory.into()),
    }
}

fn file_mut(tree: &mut Tree, number: usize) -> io::Result<&mut Vec<u8>> {
    match &mut tree[number] {
        Content::File(bytes) => Ok(bytes),
        Content::Folder(_) => Err(io::ErrorKind::IsADirectory.into()),
    }
}

impl Disk for SimulatedDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.call()?.enter(path, Content::Folder(BTreeMap::new())).map(|_| ())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let file = self.call()?.enter(path, Content::File(Vec::new()))?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        let mut state = self.call()?;
        let number = find(&state.current, path)?;
        Ok(Box::new(Cursor::new(file_mut(&mut state.current, number)?.clone())))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        let mut state = self.call()?;
        let number = find(&state.current, path)?;
        Ok(file_mut(&mut state.current, number)?.len() as u64)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Listed>> {
        let state = self.call()?;
        let entries = folder(&state.current, find(&state.current, path)?)?;
        let is_folder = |number: &usize| matches!(state.current[*number], Content::Folder(_));
        Ok(entries.iter().map(|(name, number)| Listed { name: name.clone(), folder: is_folder(number) }).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.call()?;
        match find(&state.current, to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => state.relocate(from, to),
        }
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?.relocate(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call()?;
        let number = find(&state.current, path)?;
        folder(&state.current, number)?;
        state.change(Change::Synced(number));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call()?;
        let number = find(&state.current, path)?;
        file_mut(&mut state.current, number)?;
        state.leave(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call()?;
        match folder(&state.current, find(&state.current, path)?)?.is_empty() {
            true => state.leave(path),
            false => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        }
    }

    fn free(&self, _path: &Path) -> io::Result<u64> {
        let state = self.call()?;
        Ok(state.capacity.saturating_sub(state.used()))
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    file: usize,
}

impl Write for SimulatedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.lock();
        let most = match state.count_call() {
            Some(Fault::Errno(errno)) => return Err(io::Error::from_raw_os_error(errno)),
            Some(Fault::Short) => bytes.len().div_ceil(2),
            None => bytes.len(),
        };
        let room = state.capacity.saturating_sub(state.used());
        let n = most.min(usize::try_from(room).unwrap_or(usize::MAX));
        if n == 0 && !bytes.is_empty() {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        let offset = file_mut(&mut state.current, self.file)?.len();
        state.change(Change::Write { file: self.file, offset, bytes: bytes[..n].to_vec() });
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for SimulatedFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let failed = state.count_call();
        let change = match failed {
            Some(Fault::Errno(_)) => Change::SyncFailed(self.file),
            _ => Change::Synced(self.file),
        };
        state.change(change);
        match failed {
            Some(Fault::Errno(errno)) => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{write_new, write_whole};

    fn read(disk: &SimulatedDisk, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        disk.open(Path::new(path)).ok()?.read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    #[test]
    fn what_was_not_synced_may_be_lost_and_what_was_is_not() {
        let disk = SimulatedDisk::default();
        write_new(&disk, Path::new("/a"), b"kept").unwrap();
        let lost = disk.after_power_cut(disk.instants(), &mut || false);
        assert_eq!(read(&lost, "/a"), None, "the folder was not synced");
        disk.sync_folder(Path::new("/")).unwrap();
        let cut = disk.after_power_cut(disk.instants(), &mut || false);
        assert_eq!(read(&cut, "/a"), Some(b"kept".to_vec()));
        let mut file = disk.create(Path::new("/b")).unwrap();
        file.write_all(&[7; 1200]).unwrap();
        disk.sync_folder(Path::new("/")).unwrap();
        let mut sector = 0;
        let torn = disk.after_power_cut(disk.instants(), &mut || {
            sector += 1;
            sector == 3
        });
        let bytes = read(&torn, "/b").unwrap();
        assert_eq!(bytes, [[0; 1024].as_slice(), &[7; 176]].concat(), "only the last sector arrived");
    }

    #[test]
    fn a_failed_fsync_loses_the_bytes_though_the_next_one_succeeds() {
        let disk = SimulatedDisk::default();
        let mut file = disk.create(Path::new("/a")).unwrap();
        file.write_all(b"x").unwrap();
        disk.fail(1, false, Fault::Errno(5));
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
        file.sync().unwrap();
        disk.sync_folder(Path::new("/")).unwrap();
        assert_eq!(read(&disk, "/a"), Some(b"x".to_vec()), "still in the cache");
        let cut = disk.after_power_cut(disk.instants(), &mut || false);
        assert_eq!(read(&cut, "/a"), Some(Vec::new()), "and not on the platter");
    }

    #[test]
    fn a_whole_file_is_old_or_new_at_every_instant() {
        let disk = SimulatedDisk::default();
        let path = Path::new("/labels");
        write_whole(&disk, path, &[1; 2000]).unwrap();
        disk.settle();
        write_whole(&disk, path, &[2; 3000]).unwrap();
        let mut random = 1u64;
        for instant in 0..=disk.instants() {
            for _ in 0..50 {
                let cut = disk.after_power_cut(instant, &mut || {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    random >> 63 == 0
                });
                let bytes = read(&cut, "/labels").unwrap();
                assert!(bytes == [1; 2000] || bytes == [2; 3000], "at {instant}");
            }
        }
        assert_eq!(read(&disk.after_power_cut(disk.instants(), &mut || false), "/labels"), Some(vec![2; 3000]));
    }

    #[test]
    fn a_full_disk_takes_what_fits_and_then_says_so() {
        let disk = SimulatedDisk::with_capacity(10);
        let problem = write_whole(&disk, Path::new("/a"), &[0; 11]).unwrap_err();
        assert_eq!(problem.code, protocol::Code::DiskFull);
        assert!(problem.why.contains("11 bytes are needed"), "{problem}");
        assert!(disk.list(Path::new("/")).unwrap().is_empty());
        write_whole(&disk, Path::new("/a"), &[0; 10]).unwrap();
        assert_eq!(disk.free(Path::new("/")).unwrap(), 0);
    }
}
