//! libnccl over the threads of one process, or over processes where a script says `rank_processes`. Otherwise ranks of other
//! processes cannot be reached and are refused.

#![allow(unsafe_op_in_unsafe_fn, non_snake_case, reason = "C entry points: callers vouch for pointers as NCCL demands")]

use crate::collective::{Clique, Communicator, Message, Operation, Part, Signature};
use crate::inject::CollectiveFault;
use crate::memory::Home;
use crate::reduce::{Element, Reduction};
use crate::state::{Registry, current, gpu, lock};
use crate::stream::Stream;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// An `ncclResult_t` where it fails.
type Nccl<T> = Result<T, u32>;

const UNHANDLED_CUDA_ERROR: u32 = 1;
const SYSTEM_ERROR: u32 = 2;
const INVALID_ARGUMENT: u32 = 4;
const INVALID_USAGE: u32 = 5;
const IN_PROGRESS: u32 = 7;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

fn status(body: impl FnOnce() -> Nccl<()>) -> u32 {
    body().err().unwrap_or(0)
}

unsafe fn put<T>(to: *mut T, value: T) -> Nccl<()> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    to.write(value);
    Ok(())
}

fn communicators() -> &'static Registry<Communicator> {
    static COMMUNICATORS: OnceLock<Registry<Communicator>> = OnceLock::new();
    COMMUNICATORS.get_or_init(|| Registry::new(0x6000_0000))
}

fn communicator(handle: usize) -> Nccl<Arc<Communicator>> {
    communicators().get(handle).map_err(|_| INVALID_ARGUMENT)
}

// ---- groups of calls ----

/// What a group has put off until its end.
#[derive(Default)]
struct Group {
    joined: Vec<Arc<Clique>>,
    collectives: Vec<(Arc<Communicator>, Part, Arc<Stream>)>,
    messages: Vec<(Arc<Communicator>, Arc<Stream>, Vec<Message>)>,
    splits: Vec<(Arc<Communicator>, u64, usize)>,
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static GROUP: RefCell<Group> = RefCell::default();
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

impl Group {
    /// Messages of one communicator and stream go on at the same time.
    fn add_message(&mut self, communicator: Arc<Communicator>, stream: Arc<Stream>, message: Message) {
        let same = |(c, s, _): &&mut (Arc<Communicator>, Arc<Stream>, Vec<Message>)| {
            Arc::ptr_eq(c, &communicator) && Arc::ptr_eq(s, &stream)
        };
        match self.messages.iter_mut().find(same) {
            Some((_, _, messages)) => messages.push(message),
            None => self.messages.push((communicator, stream, vec![message])),
        }
    }

    fn run(self) -> Nccl<()> {
        self.joined.iter().for_each(|clique| clique.wait_until_complete());
        self.collectives.into_iter().for_each(|(communicator, part, stream)| communicator.collect(part, &stream));
        self.messages.into_iter().for_each(|(communicator, stream, all)| communicator.exchange(all, &stream));
        for (communicator, number, out) in self.splits {
            let handle = communicator.part_of_split(number).map_or(0, |part| communicators().insert(part));
            // SAFETY: the caller of the split vouches for the place until the group has ended.
            unsafe { (out as *mut usize).write(handle) };
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> u32 {
    DEPTH.set(DEPTH.get() + 1);
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> u32 {
    status(|| {
        DEPTH.set(DEPTH.get().checked_sub(1).ok_or(INVALID_USAGE)?);
        end_of_call()
    })
}

/// Runs what was put off, unless a group is open.
fn end_of_call() -> Nccl<()> {
    if DEPTH.get() > 0 { Ok(()) } else { GROUP.take().run() }
}

// ---- communicators ----

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> u32 {
    status(|| put(version, 22_703))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(out: *mut UniqueId) -> u32 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let mut id = UniqueId([0; 128]);
    id.0[..8].copy_from_slice(&NUMBER.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    id.0[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    status(|| put(out, id))
}

/// The clique of an identity.
fn clique_of(id: &UniqueId, size: usize) -> Nccl<Arc<Clique>> {
    if gpu().settings.rank_processes.load(Ordering::Relaxed) {
        let folder = std::env::var_os("VGPU_DIR").ok_or(SYSTEM_ERROR)?;
        let name: String = id.0[..12].iter().map(|byte| format!("{byte:02x}")).collect();
        return Ok(Clique::in_files(size, PathBuf::from(folder).join(format!("nccl-{name}"))));
    }
    static CLIQUES: Mutex<Option<HashMap<[u8; 8], Arc<Clique>>>> = Mutex::new(None);
    if id.0[8..12] != std::process::id().to_le_bytes() {
        gpu().tell("a rank of another process cannot be reached".into());
        return Err(SYSTEM_ERROR);
    }
    let mut key = [0; 8];
    key.copy_from_slice(&id.0[..8]);
    let mut cliques = lock(&CLIQUES);
    let clique = cliques.get_or_insert_default().entry(key).or_insert_with(|| Clique::new(size));
    if clique.size == size { Ok(clique.clone()) } else { Err(INVALID_ARGUMENT) }
}

unsafe fn join(out: *mut usize, size: c_int, id: UniqueId, rank: c_int, blocking: bool) -> Nccl<()> {
    let device = current().map_err(|_| UNHANDLED_CUDA_ERROR)?;
    let (Ok(size), Ok(rank)) = (usize::try_from(size), usize::try_from(rank)) else { return Err(INVALID_ARGUMENT) };
    if rank >= size || out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    let clique = clique_of(&id, size)?;
    if !clique.join(rank) {
        return Err(INVALID_USAGE);
    }
    put(out, communicators().insert(Communicator::new(clique.clone(), rank, device.id)))?;
    if !blocking {
        return if clique.is_complete() { Ok(()) } else { Err(IN_PROGRESS) };
    }
    GROUP.with_borrow_mut(|group| group.joined.push(clique));
    end_of_call()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRank(out: *mut usize, size: c_int, id: UniqueId, rank: c_int) -> u32 {
    status(|| join(out, size, id, rank, true))
}

/// The start of `ncclConfig_t`.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    out: *mut usize,
    size: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> u32 {
    let blocking = config.is_null() || (*config).blocking != 0;
    status(|| join(out, size, id, rank, blocking))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitAll(out: *mut usize, size: c_int, devices: *const c_int) -> u32 {
    status(|| {
        let size = usize::try_from(size).map_err(|_| INVALID_ARGUMENT)?;
        let clique = Clique::new(size);
        for rank in 0..size {
            let device = if devices.is_null() { rank } else { *devices.add(rank) as usize };
            gpu().device(device).map_err(|_| INVALID_ARGUMENT)?;
            clique.join(rank);
            put(out.add(rank), communicators().insert(Communicator::new(clique.clone(), rank, device)))?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommSplit(
    handle: usize,
    color: c_int,
    key: c_int,
    out: *mut usize,
    _config: *mut c_void,
) -> u32 {
    status(|| {
        let communicator = communicator(handle)?;
        if out.is_null() || color < -1 {
            return Err(INVALID_ARGUMENT);
        }
        let number = communicator.wish(color, key);
        GROUP.with_borrow_mut(|group| group.splits.push((communicator, number, out as usize)));
        end_of_call()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommCount(handle: usize, out: *mut c_int) -> u32 {
    status(|| put(out, communicator(handle)?.clique.size as c_int))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommUserRank(handle: usize, out: *mut c_int) -> u32 {
    status(|| put(out, communicator(handle)?.rank as c_int))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommCuDevice(handle: usize, out: *mut c_int) -> u32 {
    status(|| put(out, communicator(handle)?.device as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(handle: usize) -> u32 {
    status(|| {
        communicators().remove(handle).map_err(|_| INVALID_ARGUMENT)?.abort();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(handle: usize) -> u32 {
    status(|| communicators().remove(handle).map(|_| ()).map_err(|_| INVALID_ARGUMENT))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommFinalize(handle: usize) -> u32 {
    status(|| communicator(handle).map(|_| ()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(handle: usize, out: *mut u32) -> u32 {
    status(|| {
        let communicator = communicator(handle)?;
        let error = match communicator.clique.failure() {
            Some(_) => INVALID_USAGE,
            None if gpu().devices[communicator.device].healthy().is_err() => UNHANDLED_CUDA_ERROR,
            None if !communicator.clique.is_complete() => IN_PROGRESS,
            None => 0,
        };
        put(out, error)
    })
}

/// What went wrong on a communicator, until this thread asks again.
#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(handle: usize) -> *const c_char {
    let text = communicator(handle).ok().and_then(|c| c.clique.failure()).unwrap_or_default();
    LAST_ERROR.with_borrow_mut(|last| {
        *last = CString::new(text).unwrap_or_default();
        last.as_ptr()
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(error: u32) -> *const c_char {
    let text = match error {
        0 => c"no error",
        UNHANDLED_CUDA_ERROR => c"unhandled cuda error",
        SYSTEM_ERROR => c"unhandled system error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        6 => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"internal error",
    };
    text.as_ptr()
}

// ---- operations ----

/// The stream of an operation, on the communicator's device.
fn stream_of(communicator: &Communicator, handle: usize) -> Nccl<Arc<Stream>> {
    let device = &gpu().devices[communicator.device];
    device.healthy().map_err(|_| UNHANDLED_CUDA_ERROR)?;
    let stream = if handle <= 2 { Ok(device.default_stream()) } else { gpu().streams.get(handle) };
    let stream = stream.map_err(|_| INVALID_ARGUMENT)?;
    if stream.refuse_capture(0).is_err() {
        gpu().note(format!("rank {} calls a collective in a capture", communicator.rank));
        return Err(INVALID_USAGE);
    }
    if stream.device != communicator.device || communicator.is_aborted() {
        return Err(INVALID_USAGE);
    }
    Ok(stream)
}

/// Fails where a range is not in one buffer of the communicator's device or of the host.
fn check(communicator: &Communicator, address: usize, bytes: usize, what: &str) -> Nccl<()> {
    gpu().memory.check(address, bytes, what).map_err(|_| INVALID_ARGUMENT)?;
    match gpu().memory.find(address).map(|range| range.home) {
        Some(Home::Device(owner)) if bytes > 0 && owner != communicator.device => {
            gpu().tell(format!("{what}: rank {} uses a buffer of device {owner}", communicator.rank));
            Err(INVALID_ARGUMENT)
        }
        _ => Ok(()),
    }
}

fn element(value: c_int) -> Nccl<Element> {
    Element::of(value).ok_or(INVALID_ARGUMENT)
}

fn reduction(value: c_int) -> Nccl<Reduction> {
    Reduction::of(value).ok_or(INVALID_ARGUMENT)
}

/// Checks and queues one rank's part in a collective.
fn collect(
    (source, target, count): (usize, usize, usize),
    number: c_int,
    operation: impl FnOnce(usize) -> Nccl<Operation>,
    handle: usize,
    stream: usize,
) -> u32 {
    status(|| {
        let communicator = communicator(handle)?;
        let stream = stream_of(&communicator, stream)?;
        let signature = Signature { operation: operation(communicator.clique.size)?, count, element: element(number)? };
        let (reads, writes) = signature.extents(communicator.rank, communicator.clique.size);
        check(&communicator, source, reads, "collective, source")?;
        check(&communicator, target, writes, "collective, target")?;
        let faults = gpu().faults.collective(communicator.device);
        if let Some(CollectiveFault::Refused(error)) = faults.iter().find(|f| **f != CollectiveFault::Spoiled) {
            return Err(*error);
        }
        let spoiled = faults.contains(&CollectiveFault::Spoiled);
        let part = Part { signature, source, target, spoiled };
        GROUP.with_borrow_mut(|group| group.collectives.push((communicator, part, stream)));
        end_of_call()
    })
}

fn root_of(root: c_int, size: usize) -> Nccl<usize> {
    usize::try_from(root).ok().filter(|root| *root < size).ok_or(INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllReduce(
    source: usize,
    target: usize,
    count: usize,
    number: c_int,
    how: c_int,
    handle: usize,
    stream: usize,
) -> u32 {
    collect((source, target, count), number, |_| Ok(Operation::AllReduce(reduction(how)?)), handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduceScatter(
    source: usize,
    target: usize,
    count: usize,
    number: c_int,
    how: c_int,
    handle: usize,
    stream: usize,
) -> u32 {
    collect((source, target, count), number, |_| Ok(Operation::ReduceScatter(reduction(how)?)), handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllGather(
    source: usize,
    target: usize,
    count: usize,
    number: c_int,
    handle: usize,
    stream: usize,
) -> u32 {
    collect((source, target, count), number, |_| Ok(Operation::AllGather), handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclAlltoAll(
    source: usize,
    target: usize,
    count: usize,
    number: c_int,
    handle: usize,
    stream: usize,
) -> u32 {
    collect((source, target, count), number, |_| Ok(Operation::AllToAll), handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclBroadcast(
    source: usize,
    target: usize,
    count: usize,
    number: c_int,
    root: c_int,
    handle: usize,
    stream: usize,
) -> u32 {
    let operation = |size| Ok(Operation::Broadcast { root: root_of(root, size)? });
    collect((source, target, count), number, operation, handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduce(
    source: usize,
    target: usize,
    count: usize,
    number: c_int,
    how: c_int,
    root: c_int,
    handle: usize,
    stream: usize,
) -> u32 {
    let operation = |size| Ok(Operation::Reduce { root: root_of(root, size)?, how: reduction(how)? });
    collect((source, target, count), number, operation, handle, stream)
}

fn message(
    sends: bool,
    (address, count, number): (usize, usize, c_int),
    peer: c_int,
    handle: usize,
    stream: usize,
) -> u32 {
    status(|| {
        let communicator = communicator(handle)?;
        let stream = stream_of(&communicator, stream)?;
        let peer = root_of(peer, communicator.clique.size)?;
        let bytes = count * element(number)?.bytes();
        check(&communicator, address, bytes, "message")?;
        let message = Message { sends, address, bytes, peer };
        GROUP.with_borrow_mut(|group| group.add_message(communicator, stream, message));
        end_of_call()
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(source: usize, count: usize, number: c_int, peer: c_int, handle: usize, stream: usize) -> u32 {
    message(true, (source, count, number), peer, handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(target: usize, count: usize, number: c_int, peer: c_int, handle: usize, stream: usize) -> u32 {
    message(false, (target, count, number), peer, handle, stream)
}
