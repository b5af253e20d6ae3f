//! Ranks that meet: collectives, messages between two ranks, splits of a communicator.
//!
//! A rank's stream waits in a collective until all ranks have come; the last one computes for all. Where the calls of two
//! ranks do not fit, both sides are named and the devices fail; NCCL would hang. A rank whose peers never come waits until
//! its own communicator is aborted or its device fails, as with NCCL.

use crate::clock::{self, Nanoseconds};
use crate::files::Files;
use crate::memory;
use crate::reduce::{Element, Reduction, reduce};
use crate::state::{code, gpu, lock};
use crate::stream::Stream;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a waiting rank looks whether its device has failed.
const LOOK: Duration = Duration::from_millis(5);

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    AllReduce(Reduction),
    ReduceScatter(Reduction),
    AllGather,
    Broadcast { root: usize },
    Reduce { root: usize, how: Reduction },
    AllToAll,
}

/// What must be the same on all ranks; the count is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) operation: Operation,
    pub(crate) count: usize,
    pub(crate) element: Element,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} {:?}", self.operation, self.count, self.element)
    }
}

impl Signature {
    fn bytes(&self) -> usize {
        self.count * self.element.bytes()
    }

    /// Bytes that a rank reads and writes.
    pub(crate) fn extents(&self, rank: usize, size: usize) -> (usize, usize) {
        let bytes = self.bytes();
        match self.operation {
            Operation::AllReduce(_) => (bytes, bytes),
            Operation::ReduceScatter(_) => (bytes * size, bytes),
            Operation::AllGather => (bytes, bytes * size),
            Operation::Broadcast { root } => (if rank == root { bytes } else { 0 }, bytes),
            Operation::Reduce { root, .. } => (bytes, if rank == root { bytes } else { 0 }),
            Operation::AllToAll => (bytes * size, bytes * size),
        }
    }

    /// What every rank receives.
    pub(crate) fn results(&self, sources: &[usize]) -> Vec<Vec<u8>> {
        let (size, bytes) = (sources.len(), self.bytes());
        let gather = |parts: Vec<usize>| parts.iter().flat_map(|part| memory::read(*part, bytes)).collect::<Vec<u8>>();
        let block = |rank: usize| sources.iter().map(|s| s + rank * bytes).collect::<Vec<usize>>();
        match self.operation {
            Operation::AllReduce(how) => vec![reduce(self.element, how, sources, self.count); size],
            Operation::ReduceScatter(how) => {
                (0..size).map(|rank| reduce(self.element, how, &block(rank), self.count)).collect()
            }
            Operation::AllGather => vec![gather(sources.to_vec()); size],
            Operation::Broadcast { root } => vec![memory::read(sources[root], bytes); size],
            Operation::Reduce { root, how } => {
                let mut results = vec![Vec::new(); size];
                results[root] = reduce(self.element, how, sources, self.count);
                results
            }
            Operation::AllToAll => (0..size).map(|rank| gather(block(rank))).collect(),
        }
    }

    /// Modelled time on a device, as rings take it.
    pub(crate) fn cost(&self, device: usize, size: usize) -> Nanoseconds {
        let (bytes, size) = (self.bytes() as f64, size as f64);
        let (sent, hops) = match self.operation {
            Operation::AllReduce(_) => (2.0 * (size - 1.0) / size * bytes, 2.0 * (size - 1.0)),
            Operation::Broadcast { .. } | Operation::Reduce { .. } => (bytes, size - 1.0),
            Operation::ReduceScatter(_) | Operation::AllGather | Operation::AllToAll => {
                ((size - 1.0) * bytes, size - 1.0)
            }
        };
        clock::collective(&gpu().devices[device], sent, hops as usize)
    }
}

/// One rank's part in a collective.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) signature: Signature,
    pub(crate) source: usize,
    pub(crate) target: usize,
    /// A fault gives this rank one wrong byte.
    pub(crate) spoiled: bool,
}

struct Arrived {
    part: Part,
    device: usize,
    start: Nanoseconds,
}

/// One collective of a clique.
#[derive(Default)]
struct Round {
    arrived: BTreeMap<usize, Arrived>,
    end: Option<Nanoseconds>,
    left: usize,
}

/// A message that its sender waits to have taken.
#[derive(Clone, Copy)]
struct Letter {
    number: u64,
    source: usize,
    bytes: usize,
    start: Nanoseconds,
}

#[derive(Default)]
struct Meeting {
    ranks: BTreeSet<usize>,
    rounds: HashMap<u64, Round>,
    letters: HashMap<(usize, usize), VecDeque<Letter>>,
    taken: HashMap<u64, Nanoseconds>,
    letters_sent: u64,
    splits: HashMap<u64, Split>,
    failure: Option<String>,
}

/// One split of a clique: what each rank asked for, and what it gets.
#[derive(Default)]
struct Split {
    wishes: BTreeMap<usize, (i32, i32)>,
    granted: BTreeMap<usize, Option<(Arc<Clique>, usize)>>,
}

/// The ranks of a communicator, wherever their threads are.
pub(crate) struct Clique {
    pub(crate) size: usize,
    /// Where they meet when they are processes.
    files: Option<Files>,
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

impl Clique {
    pub(crate) fn new(size: usize) -> Arc<Clique> {
        Arc::new(Clique { size, files: None, meeting: Mutex::default(), changed: Condvar::new() })
    }

    /// Ranks that are processes and meet in a folder.
    pub(crate) fn in_files(size: usize, folder: PathBuf) -> Arc<Clique> {
        let files = Some(Files::new(folder));
        Arc::new(Clique { size, files, meeting: Mutex::default(), changed: Condvar::new() })
    }

    /// Lets a rank in; false where it was already there.
    pub(crate) fn join(&self, rank: usize) -> bool {
        if let Some(files) = &self.files {
            return files.join(rank);
        }
        let new = lock(&self.meeting).ranks.insert(rank);
        self.changed.notify_all();
        new
    }

    pub(crate) fn is_complete(&self) -> bool {
        match &self.files {
            Some(files) => files.is_complete(self.size),
            None => lock(&self.meeting).ranks.len() == self.size,
        }
    }

    /// Returns once all ranks have joined.
    pub(crate) fn wait_until_complete(&self) {
        if let Some(files) = &self.files {
            return files.wait_until_complete(self.size);
        }
        let mut meeting = lock(&self.meeting);
        while meeting.ranks.len() < self.size {
            meeting = self.changed.wait(meeting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.meeting).failure.clone()
    }

    /// Keeps the first failure.
    pub(crate) fn note_failure(&self, message: String) {
        lock(&self.meeting).failure.get_or_insert(message);
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }
}

/// One rank's end of a communicator.
pub(crate) struct Communicator {
    pub(crate) clique: Arc<Clique>,
    pub(crate) rank: usize,
    pub(crate) device: usize,
    rounds: AtomicU64,
    splits: AtomicU64,
    /// Letters so far, from a rank to a rank; counted by each side, and only where they are files.
    letters: Mutex<HashMap<(usize, usize), u64>>,
    aborted: AtomicBool,
}

/// A message that is to be sent or received.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    pub(crate) sends: bool,
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    pub(crate) peer: usize,
}

impl Message {
    /// Modelled time on a device.
    pub(crate) fn cost(&self, device: usize) -> Nanoseconds {
        clock::collective(&gpu().devices[device], self.bytes as f64, 1)
    }
}

impl Communicator {
    pub(crate) fn new(clique: Arc<Clique>, rank: usize, device: usize) -> Arc<Communicator> {
        let (rounds, splits, letters) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::default());
        Arc::new(Communicator { clique, rank, device, rounds, splits, letters, aborted: AtomicBool::new(false) })
    }

    /// Lets this rank's waiting operations go; those of the other ranks wait on.
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.clique.wake();
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Number of the next letter from a rank to a rank.
    pub(crate) fn next_letter(&self, from: usize, to: usize) -> u64 {
        let mut letters = lock(&self.letters);
        let next = letters.entry((from, to)).or_default();
        *next += 1;
        *next
    }

    /// Whether this rank waits no more.
    pub(crate) fn gave_up(&self) -> bool {
        self.is_aborted() || gpu().devices[self.device].healthy().is_err()
    }

    /// Waits for a condition of the meeting; `None` where the rank gave up first.
    fn wait<'a, T>(
        &self,
        mut meeting: MutexGuard<'a, Meeting>,
        ready: impl Fn(&mut Meeting) -> Option<T>,
    ) -> Option<(MutexGuard<'a, Meeting>, T)> {
        loop {
            if let Some(found) = ready(&mut meeting) {
                return Some((meeting, found));
            }
            if self.gave_up() {
                return None;
            }
            let waited = self.clique.changed.wait_timeout(meeting, LOOK);
            meeting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Queues work that counts as a pending collective until it ended.
    fn submit(
        self: &Arc<Self>,
        stream: &Stream,
        work: impl FnOnce(&Self, Nanoseconds) -> Nanoseconds + Send + 'static,
    ) {
        let own = self.clone();
        let pending = &gpu().devices[self.device].pending_collectives;
        pending.fetch_add(1, Ordering::AcqRel);
        stream.push(move |start| {
            let end = if own.gave_up() { start } else { work(&own, start) };
            gpu().devices[own.device].pending_collectives.fetch_sub(1, Ordering::AcqRel);
            end
        });
    }

    // ---- collectives ----

    /// Queues this rank's part in the clique's next collective.
    pub(crate) fn collect(self: &Arc<Self>, part: Part, stream: &Stream) {
        let number = self.rounds.fetch_add(1, Ordering::AcqRel);
        self.submit(stream, move |own, start| {
            let end = own.meet(number, part, start);
            let written = part.signature.extents(own.rank, own.clique.size).1;
            if part.spoiled && written > 0 && !own.gave_up() {
                memory::spoil(part.target + written / 2);
            }
            end
        });
    }

    fn meet(&self, number: u64, part: Part, start: Nanoseconds) -> Nanoseconds {
        if let Some(files) = &self.clique.files {
            return self.meet_in_files(files, number, part, start);
        }
        let size = self.clique.size;
        let mut meeting = lock(&self.clique.meeting);
        let round = meeting.rounds.entry(number).or_default();
        round.arrived.insert(self.rank, Arrived { part, device: self.device, start });
        if round.arrived.len() == size {
            let outcome = finish(round, size);
            match outcome {
                Ok(end) => round.end = Some(end),
                Err(message) => self.fail(&mut meeting, number, message),
            }
            self.clique.changed.notify_all();
        }
        let ended = |meeting: &mut Meeting| meeting.rounds.get(&number).and_then(|round| round.end);
        let Some((mut meeting, end)) = self.wait(meeting, ended) else {
            self.withdraw(number);
            return start;
        };
        if let Some(round) = meeting.rounds.get_mut(&number) {
            round.left += 1;
            if round.left == size {
                meeting.rounds.remove(&number);
            }
        }
        end
    }

    /// The rank gave up: nobody may read its buffer any more.
    fn withdraw(&self, number: u64) {
        if let Some(round) = lock(&self.clique.meeting).rounds.get_mut(&number) {
            round.arrived.remove(&self.rank);
        }
    }

    /// The calls do not fit: all devices of the round fail, and the communicator tells why.
    fn fail(&self, meeting: &mut Meeting, number: u64, message: String) {
        if let Some(round) = meeting.rounds.get_mut(&number) {
            round.arrived.values().for_each(|a| gpu().devices[a.device].fail(code::LAUNCH_FAILED));
            round.end = Some(round.arrived.values().map(|a| a.start).max().unwrap_or(0));
        }
        gpu().tell(message.clone());
        meeting.failure.get_or_insert(message);
    }

    // ---- messages ----

    /// Queues messages that go on at the same time.
    pub(crate) fn exchange(self: &Arc<Self>, messages: Vec<Message>, stream: &Stream) {
        self.submit(stream, move |own, start| own.deliver(&messages, start));
    }

    fn deliver(&self, messages: &[Message], start: Nanoseconds) -> Nanoseconds {
        if let Some(files) = &self.clique.files {
            return self.deliver_in_files(files, messages, start);
        }
        let sent: Vec<u64> = messages.iter().filter(|m| m.sends).map(|message| self.post(message, start)).collect();
        let end = self.await_messages(messages, &sent, start);
        if end.is_none() {
            let mut meeting = lock(&self.clique.meeting);
            meeting.letters.values_mut().for_each(|letters| letters.retain(|letter| !sent.contains(&letter.number)));
        }
        end.unwrap_or(start)
    }

    /// Receives, then waits until what was sent is taken; `None` where the rank gave up first.
    fn await_messages(&self, messages: &[Message], sent: &[u64], start: Nanoseconds) -> Option<Nanoseconds> {
        let mut end = start;
        for message in messages.iter().filter(|m| !m.sends) {
            end = end.max(self.receive(message, start)?);
        }
        for number in sent {
            let (meeting, time) = self.wait(lock(&self.clique.meeting), |m| m.taken.remove(number))?;
            drop(meeting);
            end = end.max(time);
        }
        Some(end)
    }

    fn post(&self, message: &Message, start: Nanoseconds) -> u64 {
        let mut meeting = lock(&self.clique.meeting);
        meeting.letters_sent += 1;
        let number = meeting.letters_sent;
        let letter = Letter { number, source: message.address, bytes: message.bytes, start };
        meeting.letters.entry((self.rank, message.peer)).or_default().push_back(letter);
        self.clique.changed.notify_all();
        number
    }

    fn receive(&self, message: &Message, start: Nanoseconds) -> Option<Nanoseconds> {
        let way = (message.peer, self.rank);
        let next = |m: &mut Meeting| m.letters.get_mut(&way)?.pop_front();
        let (mut meeting, letter) = self.wait(lock(&self.clique.meeting), next)?;
        let end = start.max(letter.start) + message.cost(self.device);
        if letter.bytes == message.bytes {
            memory::copy(message.address, letter.source, message.bytes);
        } else {
            let (from, to) = way;
            let text = format!(
                "rank {from} sends {} bytes, but rank {to} receives {} bytes from it",
                letter.bytes, message.bytes
            );
            gpu().devices[self.device].fail(code::LAUNCH_FAILED);
            gpu().tell(text.clone());
            meeting.failure.get_or_insert(text);
        }
        meeting.taken.insert(letter.number, end);
        self.clique.changed.notify_all();
        Some(end)
    }

    // ---- splits ----

    /// Says which part this rank wants to be in, and at which place; the number of the split.
    pub(crate) fn wish(&self, color: i32, key: i32) -> u64 {
        let number = self.splits.fetch_add(1, Ordering::AcqRel);
        if let Some(files) = &self.clique.files {
            self.wish_in_files(files, number, color, key);
            return number;
        }
        let mut meeting = lock(&self.clique.meeting);
        let split = meeting.splits.entry(number).or_default();
        split.wishes.insert(self.rank, (color, key));
        if split.wishes.len() == self.clique.size {
            grant(split);
            self.clique.changed.notify_all();
        }
        number
    }

    /// Waits for a split; `None` for a rank that wants to be in no part, or that gave up.
    pub(crate) fn part_of_split(&self, number: u64) -> Option<Arc<Communicator>> {
        let (clique, rank) = match &self.clique.files {
            Some(files) => self.part_of_split_in_files(files, number)?,
            None => self.granted_part(number)?,
        };
        clique.join(rank);
        Some(Communicator::new(clique, rank, self.device))
    }

    fn granted_part(&self, number: u64) -> Option<(Arc<Clique>, usize)> {
        let granted = |m: &mut Meeting| {
            let split = m.splits.get_mut(&number)?;
            let granted = split.granted.remove(&self.rank)?;
            if split.granted.is_empty() {
                m.splits.remove(&number);
            }
            Some(granted)
        };
        let (meeting, granted) = self.wait(lock(&self.clique.meeting), granted)?;
        drop(meeting);
        granted
    }
}

/// Computes a round that all ranks have reached.
fn finish(round: &Round, size: usize) -> Result<Nanoseconds, String> {
    let mut parts = round.arrived.values().map(|a| &a.part);
    let first = parts.next().ok_or("a collective without ranks")?.signature;
    if let Some((rank, other)) = round.arrived.iter().find(|(_, a)| a.part.signature != first) {
        return Err(format!("ranks disagree: rank 0 calls {first}, rank {rank} calls {}", other.part.signature));
    }
    let sources: Vec<usize> = round.arrived.values().map(|a| a.part.source).collect();
    for (arrived, result) in round.arrived.values().zip(first.results(&sources)) {
        memory::copy(arrived.part.target, result.as_ptr() as usize, result.len());
    }
    let start = round.arrived.values().map(|a| a.start).max().unwrap_or(0);
    let cost = round.arrived.values().map(|a| first.cost(a.device, size)).max().unwrap_or(0);
    Ok(start + cost)
}

/// Ranks of one color form a clique, in order of their keys.
pub(crate) fn granted_parts(wishes: &BTreeMap<usize, (i32, i32)>) -> BTreeMap<i32, Vec<usize>> {
    let mut ranks: Vec<(i32, i32, usize)> = wishes.iter().map(|(rank, (color, key))| (*color, *key, *rank)).collect();
    ranks.sort_unstable();
    let mut parts: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    ranks.into_iter().for_each(|(color, _, rank)| parts.entry(color).or_default().push(rank));
    parts
}

fn grant(split: &mut Split) {
    for (color, members) in granted_parts(&split.wishes) {
        let clique = Clique::new(members.len());
        for (place, rank) in members.into_iter().enumerate() {
            split.granted.insert(rank, (color >= 0).then(|| (clique.clone(), place)));
        }
    }
}
