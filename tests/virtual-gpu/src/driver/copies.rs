//! Copies and fills.

use super::devices::device_of_context;
use super::{status, stream};
use crate::clock::{self, Way};
use crate::memory::{self, Home};
use crate::state::{Cu, code, current, gpu};
use crate::stream::Stream;

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(to: usize, from: usize, bytes: usize) -> u32 {
    status(|| {
        let stream = current()?.default_stream();
        host_to_device(to, from, bytes, &stream)?;
        finish(&stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, handle: usize) -> u32 {
    status(|| host_to_device(to, from, bytes, &*stream(handle)?))
}

/// Pageable memory is staged before the call returns, pinned memory is read when the stream comes to it.
fn host_to_device(to: usize, from: usize, bytes: usize, stream: &Stream) -> Cu<()> {
    gpu().memory.check(to, bytes, "copy to a device")?;
    let cost = clock::copy(&gpu().devices[stream.device], bytes, Way::Host);
    if bytes == 0 || gpu().memory.is_pinned(from, bytes) {
        stream.submit(cost, move |_| memory::copy(to, from, bytes));
        return Ok(());
    }
    // SAFETY: the caller vouches for its host memory.
    let staged = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) }.to_vec();
    stream.submit(cost, move |_| memory::copy(to, staged.as_ptr() as usize, bytes));
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(to: usize, from: usize, bytes: usize) -> u32 {
    status(|| {
        let stream = current()?.default_stream();
        device_to_host(to, from, bytes, &stream)?;
        finish(&stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: usize, bytes: usize, handle: usize) -> u32 {
    status(|| device_to_host(to, from, bytes, &*stream(handle)?))
}

/// A copy to pageable memory is done when the call returns.
fn device_to_host(to: usize, from: usize, bytes: usize, stream: &Stream) -> Cu<()> {
    gpu().memory.check(from, bytes, "copy from a device")?;
    let cost = clock::copy(&gpu().devices[stream.device], bytes, Way::Host);
    stream.submit(cost, move |_| memory::copy(to, from, bytes));
    if stream.capture().is_some() || gpu().memory.is_pinned(to, bytes) { Ok(()) } else { finish(stream) }
}

pub(super) fn finish(stream: &Stream) -> Cu<()> {
    stream.synchronize();
    gpu().devices[stream.device].healthy()
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: usize, from: usize, bytes: usize) -> u32 {
    status(|| device_to_device(to, from, bytes, &current()?.default_stream()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize, handle: usize) -> u32 {
    status(|| device_to_device(to, from, bytes, &*stream(handle)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: usize,
    to_context: usize,
    from: usize,
    from_context: usize,
    bytes: usize,
    handle: usize,
) -> u32 {
    status(|| {
        device_of_context(to_context)?;
        device_of_context(from_context)?;
        device_to_device(to, from, bytes, &*stream(handle)?)
    })
}

/// Within a device or between two; a fault may spoil the latter.
fn device_to_device(to: usize, from: usize, bytes: usize, stream: &Stream) -> Cu<()> {
    gpu().memory.check(from, bytes, "copy between devices, source")?;
    gpu().memory.check(to, bytes, "copy between devices, target")?;
    let home = |address| gpu().memory.find(address).map(|r| r.home);
    let (source, target) = (home(from), home(to));
    let is_peer = source != target && source != Some(Home::Host) && target != Some(Home::Host);
    let spoiled = match source {
        Some(Home::Device(id)) if is_peer && bytes > 0 => gpu().faults.peer_copy(id),
        _ => false,
    };
    let cost = clock::copy(&gpu().devices[stream.device], bytes, if is_peer { Way::Peer } else { Way::Within });
    stream.submit(cost, move |_| {
        memory::copy(to, from, bytes);
        if spoiled {
            memory::spoil(to + bytes / 2);
        }
    });
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAsync(to: usize, from: usize, bytes: usize, handle: usize) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        let on_device = |address| matches!(gpu().memory.find(address), Some(r) if r.home != Home::Host);
        match (on_device(to), on_device(from)) {
            (true, true) => device_to_device(to, from, bytes, &stream),
            (true, false) => host_to_device(to, from, bytes, &stream),
            (false, true) => device_to_host(to, from, bytes, &stream),
            (false, false) => Err(code::INVALID_VALUE),
        }
    })
}

fn fill<T: Copy + Send + Sync + 'static>(to: usize, value: T, count: usize, stream: &Stream) -> Cu<()> {
    let bytes = count.checked_mul(size_of::<T>()).ok_or(code::INVALID_VALUE)?;
    if !to.is_multiple_of(align_of::<T>()) {
        return Err(code::INVALID_VALUE);
    }
    gpu().memory.check(to, bytes, "memset")?;
    let device = &gpu().devices[stream.device];
    let reach = device.check_reach(&[to], "memset");
    stream.submit(clock::copy(device, bytes, Way::Within), move |device| {
        if let Err(error) = reach {
            return device.fail(error);
        }
        if count > 0 {
            // SAFETY: range and alignment were checked when the call was made.
            unsafe { std::slice::from_raw_parts_mut(to as *mut T, count) }.fill(value);
        }
    });
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(to: usize, value: u8, count: usize) -> u32 {
    status(|| fill(to, value, count, &current()?.default_stream()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: usize, value: u8, count: usize, handle: usize) -> u32 {
    status(|| fill(to, value, count, &*stream(handle)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD16Async(to: usize, value: u16, count: usize, handle: usize) -> u32 {
    status(|| fill(to, value, count, &*stream(handle)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32_v2(to: usize, value: u32, count: usize) -> u32 {
    status(|| fill(to, value, count, &current()?.default_stream()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(to: usize, value: u32, count: usize, handle: usize) -> u32 {
    status(|| fill(to, value, count, &*stream(handle)?))
}
