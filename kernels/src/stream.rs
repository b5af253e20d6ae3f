//! The order of work on a device, and the one place where memory becomes slices.
//!
//! The CPU runs an operation at once; the hidden device keeps it until someone waits. Either way an operation runs
//! while its thread holds the device's turn, so that two streams of one device never touch memory at the same moment.
//! Streams must not be used from inside a rayon pool: a thread that waits for the pool may take up other work that
//! wants the same turn.

use crate::buffer::{Buffer, DType, Element};
use crate::device::Device;
use crate::team::Team;
use std::sync::{Mutex, PoisonError};

/// Work on one device, done in the order it was asked for. Work of different streams has no order.
pub struct Stream {
    device: Device,
    queue: Mutex<Vec<Job>>,
}

type Job = Box<dyn FnOnce(&Device) + Send>;

/// Most operations that wait at once: some hundred bytes each, and more than a training step of a test has.
const QUEUE_MAX: usize = 4096;

impl Stream {
    pub(crate) fn new(device: Device) -> Stream {
        Stream { device, queue: Mutex::new(Vec::new()) }
    }

    /// The device this stream belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Fills `to` with `from`; `from` may be reused at once.
    ///
    /// # Panics
    /// When length, kind or device differ.
    #[track_caller]
    pub fn copy_from_host<T: Element>(&self, to: &Buffer, from: &[T]) {
        self.own("copy_from_host", "to", to, T::DTYPE);
        expect("copy_from_host", "to", to, &[from.len()]);
        if !self.device.defers() {
            return write(&self.device, to, from);
        }
        let (to, from) = (to.clone(), from.to_vec());
        self.submit(Box::new(move |device| write(device, &to, &from)));
    }

    /// Waits for all work so far and returns the elements of `from`.
    ///
    /// # Panics
    /// When `from` does not hold f32 of this device.
    #[track_caller]
    pub fn to_host(&self, from: &Buffer) -> Vec<f32> {
        let mut to = vec![0.0; from.len()];
        self.read_into(&mut to, from);
        to
    }

    /// Waits for all work so far and copies the elements of `from`, f32 or u32, into the caller's memory.
    ///
    /// # Panics
    /// When length, kind or device differ.
    #[track_caller]
    pub fn read_into<T: Element>(&self, to: &mut [T], from: &Buffer) {
        self.own("read_into", "from", from, T::DTYPE);
        expect("read_into", "from", from, &[to.len()]);
        self.synchronise();
        let _turn = self.device.turn();
        revealed(&self.device, &[from], || {
            // SAFETY: this thread has the turn and nothing writes while it copies.
            let words = unsafe { from.words() };
            // SAFETY: `Element` is implemented for 4-byte types only, for which every bit pattern is a value.
            unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), to.as_mut_ptr().cast(), to.len()) }
        });
    }

    /// Waits until all work so far is done.
    pub fn synchronise(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.drain(..).for_each(|job| job(&self.device));
    }

    /// Orders host code over slices of the arguments: f32 to read, u32 to read, f32 to write.
    ///
    /// # Panics
    /// When an argument is of another device or kind, or a written one overlaps any other.
    #[track_caller]
    pub(crate) fn launch<const R: usize, const I: usize, const W: usize>(
        &self,
        op: &'static str,
        arguments: Arguments<'_, R, I, W>,
        work: impl FnOnce(&Team, [&[f32]; R], [&[u32]; I], [&mut [f32]; W]) + Send + 'static,
    ) {
        arguments.check(op, self);
        if !self.device.defers() {
            return run(&self.device, &arguments, work);
        }
        let held = arguments.held();
        self.submit(Box::new(move |device| {
            run(
                device,
                &Arguments { reads: held.0.each_ref(), indices: held.1.each_ref(), writes: held.2.each_ref() },
                work,
            );
        }));
    }

    fn submit(&self, job: Job) {
        let full = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push(job);
            queue.len() >= QUEUE_MAX
        };
        if full {
            self.synchronise();
        }
    }

    #[track_caller]
    fn own(&self, op: &str, name: &str, buffer: &Buffer, dtype: DType) {
        assert!(self.device.same(buffer.device()), "{op}: `{name}` belongs to another device");
        assert!(buffer.dtype() == dtype, "{op}: `{name}` holds {:?}, {dtype:?} is wanted", buffer.dtype());
    }
}

impl Drop for Stream {
    /// What was asked for is done, also when nobody waited for it.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.synchronise();
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({})", self.device.name())
    }
}

/// The buffers of one operation, by what it does with them. What is written in place stands in `writes` alone.
pub(crate) struct Arguments<'a, const R: usize, const I: usize, const W: usize> {
    pub reads: [&'a Buffer; R],
    pub indices: [&'a Buffer; I],
    pub writes: [&'a Buffer; W],
}

impl<const R: usize, const I: usize, const W: usize> Arguments<'_, R, I, W> {
    #[track_caller]
    fn check(&self, op: &str, stream: &Stream) {
        self.reads.iter().for_each(|buffer| stream.own(op, "read", buffer, DType::F32));
        self.indices.iter().for_each(|buffer| stream.own(op, "indices", buffer, DType::U32));
        self.writes.iter().for_each(|buffer| stream.own(op, "written", buffer, DType::F32));
        for (i, written) in self.writes.iter().enumerate() {
            let others = self.writes[..i].iter().chain(&self.reads).chain(&self.indices);
            for other in others {
                assert!(!written.overlaps(other), "{op}: written {written:?} overlaps {other:?}");
            }
        }
    }

    fn held(&self) -> ([Buffer; R], [Buffer; I], [Buffer; W]) {
        (self.reads.map(Buffer::clone), self.indices.map(Buffer::clone), self.writes.map(Buffer::clone))
    }

    fn all(&self) -> Vec<&Buffer> {
        self.reads.iter().chain(&self.indices).chain(&self.writes).copied().collect()
    }
}

fn run<const R: usize, const I: usize, const W: usize>(
    device: &Device,
    arguments: &Arguments<'_, R, I, W>,
    work: impl FnOnce(&Team, [&[f32]; R], [&[u32]; I], [&mut [f32]; W]),
) {
    let _turn = device.turn();
    revealed(device, &arguments.all(), || {
        // SAFETY: this thread has the turn; `Arguments::check` found written ranges disjoint from all others.
        let reads = arguments.reads.map(|buffer| floats(unsafe { buffer.words() }));
        // SAFETY: as above.
        let indices = arguments.indices.map(|buffer| unsafe { buffer.words() });
        // SAFETY: as above.
        let writes = arguments.writes.map(|buffer| floats_mut(unsafe { buffer.words_mut() }));
        work(device.team(), reads, indices, writes);
    });
}

fn write<T: Element>(device: &Device, to: &Buffer, from: &[T]) {
    let _turn = device.turn();
    revealed(device, &[to], || {
        // SAFETY: this thread has the turn and `to` is the only slice.
        let words = unsafe { to.words_mut() };
        // SAFETY: `Element` is implemented for 4-byte types only; lengths were found equal; a host slice lies elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast(), words.as_mut_ptr(), from.len()) }
    });
}

/// Runs `work` while the words of `buffers` are in the clear. On a CPU they always are.
fn revealed(device: &Device, buffers: &[&Buffer], work: impl FnOnce()) {
    let key = device.scramble();
    if key == 0 {
        return work();
    }
    let merged = merge(buffers);
    flip(&merged, key);
    work();
    flip(&merged, key);
}

fn flip(buffers: &[Buffer], key: u32) {
    for buffer in buffers {
        // SAFETY: the caller of `revealed` has the turn; merged ranges are disjoint and no other slice lives here.
        unsafe { buffer.words_mut() }.iter_mut().for_each(|word| *word ^= key);
    }
}

/// The union of `buffers` as disjoint ranges, so that a word that is read twice is revealed once.
fn merge(buffers: &[&Buffer]) -> Vec<Buffer> {
    let mut places: Vec<_> = buffers.iter().filter(|b| !b.is_empty()).map(|b| (b.place(), *b)).collect();
    places.sort_by_key(|((base, range), _)| (*base, range.start));
    let mut merged: Vec<Buffer> = Vec::new();
    for ((base, range), buffer) in places {
        match merged.last_mut().map(|last| (last.place(), last)) {
            Some(((b, r), last)) if b == base && range.start <= r.end => *last = last.at(r.start..r.end.max(range.end)),
            _ => merged.push(buffer.clone()),
        }
    }
    merged
}

fn floats(words: &[u32]) -> &[f32] {
    // SAFETY: same size and alignment, and every bit pattern is an f32.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

fn floats_mut(words: &mut [u32]) -> &mut [f32] {
    // SAFETY: same size and alignment, every bit pattern is an f32 and a u32.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
}

/// Panics unless `buffer` has as many elements as `shape`.
#[track_caller]
pub(crate) fn expect(op: &str, name: &str, buffer: &Buffer, shape: &[usize]) {
    let wanted = shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
    assert!(wanted == Some(buffer.len()), "{op}: `{name}` has {} elements, the shape is {shape:?}", buffer.len());
}
