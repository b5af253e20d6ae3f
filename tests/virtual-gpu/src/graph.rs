//! Stream capture and graphs: work that is recorded instead of done, and done later as often as wanted.
//!
//! A graph runs its steps one after the other in the order in which they were issued, which is one of the orders that
//! their dependencies allow; branches do not overlap in modelled time. Allocations and collectives cannot be captured.

#![allow(unsafe_op_in_unsafe_fn, non_snake_case, reason = "C entry points: callers vouch for pointers as CUDA demands")]

use crate::clock::Nanoseconds;
use crate::driver::{put, status, stream};
use crate::state::{Cu, Device, Registry, code, gpu, lock};
use crate::stream::Stream;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;

/// What a step does; a graph does it again and again.
pub(crate) type Step = Arc<dyn Fn(&'static Device) + Send + Sync>;

#[derive(Clone)]
struct Node {
    cost: Nanoseconds,
    step: Step,
}

/// A capture under way.
pub(crate) struct Capture {
    device: usize,
    /// The stream that began it.
    origin: usize,
    mode: c_int,
    thread: ThreadId,
    broken: AtomicBool,
    nodes: Mutex<Vec<Node>>,
    /// Streams that took part, and those of them whose work the others do not wait for yet.
    streams: Mutex<Vec<Arc<Stream>>>,
    unjoined: Mutex<BTreeSet<usize>>,
}

fn identity(stream: &Stream) -> usize {
    std::ptr::from_ref(stream) as usize
}

impl Capture {
    /// A call that a capture forbids ends it; the error that the call answers.
    pub(crate) fn spoil(&self, error: u32) -> u32 {
        self.broken.store(true, Ordering::Release);
        error
    }

    /// Adds a step that was issued to a stream.
    pub(crate) fn add(&self, stream: &Stream, cost: Nanoseconds, step: Step) {
        lock(&self.nodes).push(Node { cost, step });
        if identity(stream) != self.origin {
            lock(&self.unjoined).insert(identity(stream));
        }
    }

    /// Lets another stream take part.
    pub(crate) fn admit(&self, stream: &Arc<Stream>) {
        lock(&self.streams).push(stream.clone());
        lock(&self.unjoined).insert(identity(stream));
    }

    /// Another stream waits for what this one did.
    pub(crate) fn join(&self, recorded_by: usize) {
        lock(&self.unjoined).remove(&recorded_by);
    }
}

fn captures() -> &'static Mutex<Vec<Arc<Capture>>> {
    static CAPTURES: OnceLock<Mutex<Vec<Arc<Capture>>>> = OnceLock::new();
    CAPTURES.get_or_init(Mutex::default)
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls that may block do no harm.
const RELAXED: c_int = 2;

/// Fails where a capture forbids calls that may block, and spoils that capture.
pub(crate) fn check_capture(device: usize) -> Cu<()> {
    let thread = std::thread::current().id();
    let forbids = |c: &&Arc<Capture>| c.device == device && (c.mode == 0 || c.mode == 1 && c.thread == thread);
    match lock(captures()).iter().find(forbids) {
        Some(capture) => Err(capture.spoil(code::STREAM_CAPTURE_UNSUPPORTED)),
        None => Ok(()),
    }
}

/// Gives up the captures of a device, or those that one stream takes part in.
pub(crate) fn forget_captures(device: usize, stream: Option<&Arc<Stream>>) {
    lock(captures()).retain(|capture| {
        let mut streams = lock(&capture.streams);
        let concerns = stream.is_none_or(|stream| streams.iter().any(|other| Arc::ptr_eq(other, stream)));
        if capture.device != device || !concerns {
            return true;
        }
        capture.spoil(code::STREAM_CAPTURE_INVALIDATED);
        streams.drain(..).for_each(|stream| stream.set_capture(None));
        false
    });
}

/// What a capture made.
struct Graph {
    device: usize,
    nodes: Vec<Node>,
}

fn graphs() -> &'static Registry<Graph> {
    static GRAPHS: OnceLock<Registry<Graph>> = OnceLock::new();
    GRAPHS.get_or_init(|| Registry::new(0x1100_0000))
}

fn executables() -> &'static Registry<Graph> {
    static EXECUTABLES: OnceLock<Registry<Graph>> = OnceLock::new();
    EXECUTABLES.get_or_init(|| Registry::new(0x1200_0000))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(handle: usize, mode: c_int) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        gpu().check_collectives(stream.device, "cuStreamBeginCapture")?;
        if !(0..=RELAXED).contains(&mode) {
            return Err(code::INVALID_VALUE);
        }
        if handle <= 2 {
            return Err(code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if stream.capture().is_some() {
            return Err(code::INVALID_VALUE);
        }
        let capture = Arc::new(Capture {
            device: stream.device,
            origin: identity(&stream),
            mode,
            thread: std::thread::current().id(),
            broken: AtomicBool::new(false),
            nodes: Mutex::default(),
            streams: Mutex::new(vec![stream.clone()]),
            unjoined: Mutex::default(),
        });
        stream.set_capture(Some(capture.clone()));
        lock(captures()).push(capture);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(handle: usize, out: *mut usize) -> u32 {
    status(|| {
        put(out, 0)?;
        let stream = stream(handle)?;
        let capture = stream.capture().ok_or(code::INVALID_VALUE)?;
        if capture.origin != identity(&stream) {
            return Err(code::STREAM_CAPTURE_UNMATCHED);
        }
        lock(captures()).retain(|other| !Arc::ptr_eq(other, &capture));
        lock(&capture.streams).drain(..).for_each(|stream| stream.set_capture(None));
        if capture.broken.load(Ordering::Acquire) {
            return Err(code::STREAM_CAPTURE_INVALIDATED);
        }
        if !lock(&capture.unjoined).is_empty() {
            return Err(code::STREAM_CAPTURE_UNJOINED);
        }
        let nodes = lock(&capture.nodes).clone();
        put(out, graphs().insert(Arc::new(Graph { device: capture.device, nodes })))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(handle: usize, out: *mut c_int) -> u32 {
    status(|| {
        let state = match stream(handle)?.capture() {
            None => 0,
            Some(capture) if capture.broken.load(Ordering::Acquire) => 2,
            Some(_) => 1,
        };
        put(out, state)
    })
}

/// Free memory on launch; upload; launch from a device; node priorities.
const FLAGS: c_ulonglong = 1 | 2 | 4 | 8;
const FLAG_AUTO_FREE: c_ulonglong = 1;
const FLAG_DEVICE_LAUNCH: c_ulonglong = 4;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(out: *mut usize, graph: usize, flags: c_ulonglong) -> u32 {
    status(|| {
        let graph = graphs().get(graph)?;
        let both = FLAG_AUTO_FREE | FLAG_DEVICE_LAUNCH;
        if out.is_null() || flags & !FLAGS != 0 || flags & both == both {
            return Err(code::INVALID_VALUE);
        }
        if flags & FLAG_DEVICE_LAUNCH != 0 {
            return Err(code::NOT_SUPPORTED);
        }
        let executable = Graph { device: graph.device, nodes: graph.nodes.clone() };
        put(out, executables().insert(Arc::new(executable)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: usize, handle: usize) -> u32 {
    status(|| {
        let (executable, stream) = (executables().get(executable)?, stream(handle)?);
        if executable.device != stream.device {
            return Err(code::INVALID_VALUE);
        }
        for node in &executable.nodes {
            stream.submit_step(node.cost, node.step.clone());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(executable: usize, handle: usize) -> u32 {
    status(|| {
        executables().get(executable)?;
        stream(handle).map(|_| ())
    })
}

/// How many steps a graph has; its nodes themselves cannot be looked at.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphGetNodes(graph: usize, nodes: *mut c_void, count: *mut usize) -> u32 {
    status(|| {
        let graph = graphs().get(graph)?;
        if nodes.is_null() { put(count, graph.nodes.len()) } else { Err(code::NOT_SUPPORTED) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: usize) -> u32 {
    status(|| graphs().remove(graph).map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: usize) -> u32 {
    status(|| executables().remove(executable).map(|_| ()))
}
