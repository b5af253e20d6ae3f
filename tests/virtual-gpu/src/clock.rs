//! Modelled time: what an operation would cost on a device with the figures of the script.
//!
//! Every stream has a time of its own, and so has every host thread. An operation starts at the later of its stream's time
//! and the time at which the host issued it; a wait for an event takes the later of both sides; a host thread that
//! synchronises takes the stream's time. Streams do not compete for a device, so that the result does not depend on how
//! the threads of this process were scheduled.

use crate::state::Device;
use std::cell::Cell;

/// Nanoseconds of modelled time.
pub(crate) type Nanoseconds = u64;

/// Cost of any launch or copy, before its first byte.
const LAUNCH_NS: f64 = 4_000.0;
/// Cost of a step of a collective.
const HOP_NS: f64 = 8_000.0;
/// Bytes that a thread of a kernel is taken to move.
const BYTES_A_THREAD: f64 = 16.0;

thread_local! {
    static HOST: Cell<Nanoseconds> = const { Cell::new(0) };
}

/// Time of this host thread.
pub(crate) fn host_time() -> Nanoseconds {
    HOST.get()
}

/// The host waited for something that ended at `time`.
pub(crate) fn host_waited_until(time: Nanoseconds) {
    HOST.set(HOST.get().max(time));
}

fn cost(device: &Device, seconds: f64, fixed_ns: f64) -> Nanoseconds {
    (device.read(|s| s.slow_factor.max(0.0)) * (fixed_ns + seconds * 1e9)) as Nanoseconds
}

/// A kernel of so many threads.
pub(crate) fn kernel(device: &Device, threads: u64) -> Nanoseconds {
    cost(device, threads as f64 * BYTES_A_THREAD / device.read(|s| s.memory_bandwidth), LAUNCH_NS)
}

/// Which way a copy goes.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Host,
    Within,
    Peer,
}

/// A copy of so many bytes.
pub(crate) fn copy(device: &Device, bytes: usize, way: Way) -> Nanoseconds {
    let bandwidth = device.read(|s| match way {
        Way::Host => s.host_bandwidth,
        Way::Within => s.memory_bandwidth / 2.0,
        Way::Peer => s.link_bandwidth,
    });
    cost(device, bytes as f64 / bandwidth, LAUNCH_NS)
}

/// How a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    Half,
    Tf32,
    Single,
    Double,
}

/// A product of so many operations that moves so many bytes.
pub(crate) fn product(device: &Device, operations: f64, bytes: f64, precision: Precision) -> Nanoseconds {
    let share = match precision {
        Precision::Half => 1.0,
        Precision::Tf32 => 4.0,
        Precision::Single => 16.0,
        Precision::Double => 32.0,
    };
    let (flops, bandwidth) = device.read(|s| (s.flops, s.memory_bandwidth));
    cost(device, (operations * share / flops).max(bytes / bandwidth), LAUNCH_NS)
}

/// A collective that sends `bytes` over a device's link in `hops` steps.
pub(crate) fn collective(device: &Device, bytes: f64, hops: usize) -> Nanoseconds {
    cost(device, bytes / device.read(|s| s.link_bandwidth), LAUNCH_NS + HOP_NS * hops as f64)
}
