//! Streams: one thread and one queue each, truly asynchronous, so that a forgotten wait shows; and events between them.

use crate::clock::{self, Nanoseconds};
use crate::graph::{Capture, Step};
use crate::state::{Cu, Device, code, gpu, lock};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Takes the modelled time at which it starts and answers the one at which it ends.
type Work = Box<dyn FnOnce(Nanoseconds) -> Nanoseconds + Send>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Nanoseconds, Work)>,
    running: bool,
    closed: bool,
}

/// A stream of a device.
pub(crate) struct Stream {
    pub(crate) device: usize,
    queue: Mutex<Queue>,
    arrived: Condvar,
    idle: Condvar,
    time: AtomicU64,
    capture: Mutex<Option<Arc<Capture>>>,
}

impl Stream {
    /// A stream with its thread.
    pub(crate) fn start(device: usize) -> Arc<Stream> {
        let stream = Arc::new(Stream {
            device,
            queue: Mutex::default(),
            arrived: Condvar::new(),
            idle: Condvar::new(),
            time: AtomicU64::new(0),
            capture: Mutex::default(),
        });
        lock(&gpu().devices[device].running_streams).push(Arc::downgrade(&stream));
        let own = stream.clone();
        let thread = std::thread::Builder::new().name(format!("vgpu-stream-{device}"));
        if let Err(error) = thread.spawn(move || own.run()) {
            gpu().tell(format!("cannot start a stream's thread: {error}"));
            std::process::abort();
        }
        stream
    }

    fn run(&self) {
        // Any odd number does: streams shall differ, and runs need not agree.
        let mut random = std::ptr::from_ref(self) as u64 | 1;
        while let Some((issued, work)) = self.next() {
            hold_up(&mut random);
            let end = work(issued.max(self.time()));
            self.time.fetch_max(end, Ordering::AcqRel);
            let mut queue = lock(&self.queue);
            queue.running = false;
            if queue.waiting.is_empty() {
                self.idle.notify_all();
            }
        }
    }

    fn next(&self) -> Option<(Nanoseconds, Work)> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(next) = queue.waiting.pop_front() {
                queue.running = true;
                return Some(next);
            }
            if queue.closed {
                return None;
            }
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Queues work that happens whether or not the device is healthy.
    pub(crate) fn push(&self, work: impl FnOnce(Nanoseconds) -> Nanoseconds + Send + 'static) {
        lock(&self.queue).waiting.push_back((clock::host_time(), Box::new(work)));
        self.arrived.notify_one();
    }

    /// Queues work of a known cost that a failed device leaves out, or adds it to the graph that is captured.
    pub(crate) fn submit(&self, cost: Nanoseconds, work: impl Fn(&'static Device) + Send + Sync + 'static) {
        self.submit_step(cost, Arc::new(work));
    }

    pub(crate) fn submit_step(&self, cost: Nanoseconds, step: Step) {
        if let Some(capture) = self.capture() {
            return capture.add(self, cost, step);
        }
        let id = self.device;
        self.push(move |start| {
            let device = &gpu().devices[id];
            if device.healthy().is_err() {
                return start;
            }
            step(device);
            start + cost
        });
    }

    /// The capture that the stream takes part in.
    pub(crate) fn capture(&self) -> Option<Arc<Capture>> {
        lock(&self.capture).clone()
    }

    pub(crate) fn set_capture(&self, capture: Option<Arc<Capture>>) {
        *lock(&self.capture) = capture;
    }

    /// Fails, and spoils the capture, where the stream takes part in one.
    pub(crate) fn refuse_capture(&self, error: u32) -> Cu<()> {
        match self.capture() {
            Some(capture) => Err(capture.spoil(error)),
            None => Ok(()),
        }
    }

    /// Waits until all is done.
    pub(crate) fn synchronize(&self) {
        let mut queue = lock(&self.queue);
        while queue.running || !queue.waiting.is_empty() {
            queue = self.idle.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        drop(queue);
        clock::host_waited_until(self.time());
    }

    pub(crate) fn is_idle(&self) -> bool {
        let queue = lock(&self.queue);
        !queue.running && queue.waiting.is_empty()
    }

    /// Ends the thread once the queue is empty.
    pub(crate) fn close(&self) {
        lock(&self.queue).closed = true;
        self.arrived.notify_one();
    }

    /// Modelled time at which the last finished work ended.
    pub(crate) fn time(&self) -> Nanoseconds {
        self.time.load(Ordering::Acquire)
    }
}

/// Sleeps for a random time, where the script asks for it.
fn hold_up(random: &mut u64) {
    let most = gpu().settings.jitter_us.load(Ordering::Relaxed);
    if most > 0 {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((*random >> 33) % (most + 1)));
    }
}

#[derive(Default)]
struct Records {
    issued: u64,
    done: u64,
    time: Nanoseconds,
}

/// An event; only its latest record counts, as with the driver.
#[derive(Default)]
pub(crate) struct Event {
    records: Mutex<Records>,
    changed: Condvar,
    /// The capture in which it was last recorded, and the stream.
    captured: Mutex<Option<(Arc<Capture>, usize)>>,
    /// Created without timing.
    pub(crate) untimed: bool,
}

impl Event {
    pub(crate) fn new(untimed: bool) -> Arc<Event> {
        Arc::new(Event { untimed, ..Event::default() })
    }

    /// Records the event in a stream.
    pub(crate) fn record(self: Arc<Self>, stream: &Stream) {
        let capture = stream.capture().map(|capture| (capture, std::ptr::from_ref(stream) as usize));
        let is_captured = capture.is_some();
        *lock(&self.captured) = capture;
        if is_captured {
            return;
        }
        let number = {
            let mut records = lock(&self.records);
            records.issued += 1;
            records.issued
        };
        stream.push(move |start| {
            let mut records = lock(&self.records);
            if number > records.done {
                (records.done, records.time) = (number, start);
            }
            self.changed.notify_all();
            start
        });
    }

    /// Lets a stream wait for the latest record; with an event of a capture, the stream takes part in it.
    pub(crate) fn hold(self: Arc<Self>, stream: &Arc<Stream>) -> Cu<()> {
        let number = lock(&self.records).issued;
        let captured = lock(&self.captured).clone();
        match (captured, stream.capture()) {
            (None, None) if number > 0 => stream.push(move |start| start.max(self.wait(number))),
            (None, None) => {}
            (Some((capture, recorder)), None) => {
                capture.admit(stream);
                capture.join(recorder);
                stream.set_capture(Some(capture));
            }
            (Some((capture, recorder)), Some(own)) if Arc::ptr_eq(&capture, &own) => capture.join(recorder),
            (None, Some(_)) if number == 0 => {}
            (_, Some(own)) => return Err(own.spoil(code::STREAM_CAPTURE_ISOLATION)),
        }
        Ok(())
    }

    /// Fails for an event of a capture, and spoils that capture.
    fn refuse_captured(&self) -> Cu<()> {
        match &*lock(&self.captured) {
            Some((capture, _)) => Err(capture.spoil(code::CAPTURED_EVENT)),
            None => Ok(()),
        }
    }

    fn wait(&self, number: u64) -> Nanoseconds {
        let mut records = lock(&self.records);
        while records.done < number {
            records = self.changed.wait(records).unwrap_or_else(PoisonError::into_inner);
        }
        records.time
    }

    /// Lets this thread wait for the latest record.
    pub(crate) fn synchronize(&self) -> Cu<()> {
        self.refuse_captured()?;
        let number = lock(&self.records).issued;
        clock::host_waited_until(self.wait(number));
        Ok(())
    }

    /// `NOT_READY` while the latest record is pending.
    pub(crate) fn query(&self) -> Cu<()> {
        self.refuse_captured()?;
        let records = lock(&self.records);
        if records.done < records.issued { Err(code::NOT_READY) } else { Ok(()) }
    }

    /// Modelled milliseconds from `earlier` to this event.
    pub(crate) fn milliseconds_since(&self, earlier: &Event) -> Cu<f32> {
        if self.untimed || earlier.untimed {
            return Err(code::INVALID_HANDLE);
        }
        let (to, from) = (self.finished()?, earlier.finished()?);
        Ok((to as f64 - from as f64) as f32 / 1e6)
    }

    fn finished(&self) -> Cu<Nanoseconds> {
        let records = lock(&self.records);
        match (records.issued, records.done) {
            (0, _) => Err(code::INVALID_HANDLE),
            (issued, done) if done < issued => Err(code::NOT_READY),
            _ => Ok(records.time),
        }
    }
}
