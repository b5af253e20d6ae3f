//! The order of work on a device, and the one place where memory becomes slices.
//!
//! The CPU runs an operation at once; the hidden device keeps it until someone waits; a CUDA device has streams of its own,
//! and its operations never come here as host code. On the first two an operation runs
//! while its thread holds the device's turn, so that two streams of one device never touch memory at the same moment.
//! Streams must not be used from inside a rayon pool: a thread that waits for the pool may take up other work that
//! wants the same turn.

use crate::buffer::{Buffer, DType, Element};
use crate::cuda::{Launcher, Queue};
use crate::device::{AllocError, Device};
use crate::hidden::revealed;
use crate::team::Team;
use std::sync::{Mutex, PoisonError};

/// Work on one device, done in the order it was asked for. Work of different streams has no order.
pub struct Stream {
    device: Device,
    /// What a hidden device has not done yet.
    queue: Mutex<Vec<Job>>,
    /// The stream of a CUDA device.
    cuda: Option<Queue>,
}

type Job = Box<dyn FnOnce(&Device) + Send>;

/// Most operations that wait at once: some hundred bytes each, and more than a training step of a test has.
const QUEUE_MAX: usize = 4096;

impl Stream {
    pub(crate) fn new(device: Device) -> Stream {
        let cuda = device.gpu().map(Queue::new);
        Stream { device, queue: Mutex::new(Vec::new()), cuda }
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
        if let Some(cuda) = &self.cuda {
            return cuda.write(to.address(), from);
        }
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
        if let Some(cuda) = &self.cuda {
            return cuda.read(to, from.address());
        }
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
        if let Some(cuda) = &self.cuda {
            cuda.synchronise("synchronise");
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.drain(..).for_each(|job| job(&self.device));
    }

    /// Makes `bytes` of room for what operations need beside their buffers, so that none allocates later:
    /// the most that [`crate::matmul::room_bytes`] and [`crate::attention::room_bytes`] say of any shape to come.
    /// Room grows by itself where this was not called. Not counted in [`Device::bytes_in_use`]. A CPU needs none.
    ///
    /// # Errors
    /// [`AllocError`] where the device has no more.
    pub fn reserve(&self, bytes: u64) -> Result<(), AllocError> {
        self.cuda.as_ref().map_or(Ok(()), |cuda| cuda.reserve(bytes))
    }

    /// What launches kernels, where this is a CUDA device's stream; checks the arguments then as [`Stream::launch`] does.
    ///
    /// # Panics
    /// When an argument is of another device or kind, or a written one overlaps any other.
    #[track_caller]
    pub(crate) fn cuda<const R: usize, const I: usize, const W: usize>(
        &self,
        op: &'static str,
        arguments: &Arguments<'_, R, I, W>,
    ) -> Option<Launcher<'_>> {
        let queue = self.cuda.as_ref()?;
        arguments.check(op, self);
        Some(Launcher { op, queue })
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

    /// The stream of a CUDA device.
    pub(crate) fn queue(&self) -> Option<&Queue> {
        self.cuda.as_ref()
    }

    #[track_caller]
    pub(crate) fn own(&self, op: &str, name: &str, buffer: &Buffer, dtype: DType) {
        assert!(self.device.same(buffer.device()), "{op}: `{name}` belongs to another device");
        assert!(buffer.dtype() == dtype, "{op}: `{name}` holds {:?}, {dtype:?} is wanted", buffer.dtype());
    }
}

impl Drop for Stream {
    /// What was asked for is done, also when nobody waited for it. A CUDA stream waits in its own way.
    fn drop(&mut self) {
        if self.cuda.is_none() && !std::thread::panicking() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::{add, fill};

    /// What stands in memory right now, which no operation of the crate would tell.
    fn raw(buffer: &Buffer) -> Vec<u32> {
        let _turn = buffer.device().turn();
        // SAFETY: this thread has the turn and nothing writes while it copies.
        unsafe { buffer.words() }.to_vec()
    }

    #[test]
    fn hidden_memory_cannot_be_read_past_the_stream() {
        let device = Device::hidden(1);
        let (stream, x) = (device.stream(), device.alloc(4, DType::F32).unwrap());
        fill(&stream, &x, 3.0);
        stream.synchronise();
        assert!(raw(&x).iter().all(|word| *word != 3.0f32.to_bits()));
        assert_eq!(stream.to_host(&x), [3.0; 4]);
    }

    #[test]
    fn hidden_work_waits_for_a_synchronisation() {
        let device = Device::hidden(1);
        let (stream, x) = (device.stream(), device.alloc(4, DType::F32).unwrap());
        let before = raw(&x);
        fill(&stream, &x, 3.0);
        assert_eq!(raw(&x), before);
        assert_eq!(device.stream().to_host(&x), [0.0; 4], "another stream does not wait for this one");
        stream.synchronise();
        assert_ne!(raw(&x), before);
    }

    #[test]
    fn work_that_nobody_waited_for_is_done_when_its_stream_ends() {
        let device = Device::hidden(1);
        let x = device.alloc(4, DType::F32).unwrap();
        fill(&device.stream(), &x, 3.0);
        assert_eq!(device.stream().to_host(&x), [3.0; 4]);
    }

    #[test]
    fn a_full_queue_starts_by_itself() {
        let device = Device::hidden(1);
        let (stream, x) = (device.stream(), device.alloc(1, DType::F32).unwrap());
        let before = raw(&x);
        (0..QUEUE_MAX).for_each(|_| fill(&stream, &x, 3.0));
        assert_ne!(raw(&x), before);
    }

    #[test]
    fn overlapping_arguments_that_are_only_read_are_revealed_once() {
        let device = Device::hidden(1);
        let (stream, x) = (device.stream(), device.alloc(8, DType::F32).unwrap());
        stream.copy_from_host(&x, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let out = device.alloc(4, DType::F32).unwrap();
        crate::swiglu::forward(&stream, &out, &x.slice(1..5), &x.slice(3..7));
        let silu = |g: f32| f64::from(g) / (1.0 + f64::from(-g).exp());
        let wanted: Vec<f64> = (1..5u8).map(|g| silu(f32::from(g)) * f64::from(g + 2)).collect();
        crate::testing::close("out", &stream.to_host(&out), &wanted, 1e-6);
        assert_eq!(stream.to_host(&x)[3..6], [3.0, 4.0, 5.0]);
    }

    #[test]
    fn integers_come_back_as_they_went() {
        for device in [Device::cpu(1), Device::hidden(1)] {
            let (stream, x) = (device.stream(), device.alloc(3, DType::U32).unwrap());
            stream.copy_from_host(&x, &[7u32, u32::MAX, 0x7fc0_0001]);
            let mut back = [0u32; 2];
            stream.read_into(&mut back, &x.slice(1..3));
            assert_eq!(back, [u32::MAX, 0x7fc0_0001]);
        }
    }

    #[test]
    fn threads_that_share_a_device_take_turns() {
        let device = Device::cpu(2);
        let (x, one) = (device.alloc(50_000, DType::F32).unwrap(), device.alloc(50_000, DType::F32).unwrap());
        fill(&device.stream(), &one, 1.0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..20).for_each(|_| add(&device.stream(), &x, &one)));
            }
        });
        assert_eq!(device.stream().to_host(&x), vec![60.0; 50_000]);
    }

    #[test]
    #[should_panic(expected = "belongs to another device")]
    fn a_buffer_of_another_device_is_refused() {
        fill(&Device::cpu(1).stream(), &Device::cpu(1).alloc(1, DType::F32).unwrap(), 0.0);
    }

    #[test]
    #[should_panic(expected = "holds U32, F32 is wanted")]
    fn integers_are_not_taken_for_floats() {
        let device = Device::cpu(1);
        fill(&device.stream(), &device.alloc(1, DType::U32).unwrap(), 0.0);
    }
}
