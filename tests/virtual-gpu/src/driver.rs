//! libcuda: the entry points over devices, memory, streams, events, modules and kernels.
//!
//! Left out on purpose, so that a program that needs them fails at once: contexts other than the primary ones, managed
//! memory, textures, cooperative launches. Streams of flag 0 do not wait for the default stream.

#![allow(unsafe_op_in_unsafe_fn, non_snake_case, reason = "C entry points: callers vouch for pointers as CUDA demands")]

use crate::clock::{self, Way};
use crate::graph::{check_capture, forget_captures};
use crate::kernel::{self, Geometry, Module};
use crate::memory::{self, Home};
use crate::state::{Cu, Device, code, current, current_unchecked, gpu, lock, set_current};
use crate::stream::{Event, Stream};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// Runs a body and answers its `CUresult`.
pub(crate) fn status(body: impl FnOnce() -> Cu<()>) -> u32 {
    body().err().unwrap_or(0)
}

pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Cu<()> {
    if to.is_null() {
        return Err(code::INVALID_VALUE);
    }
    to.write(value);
    Ok(())
}

/// Writes a text with its NUL, cut to what fits.
pub(crate) unsafe fn put_text(to: *mut c_char, capacity: usize, text: &str) -> Cu<()> {
    if to.is_null() || capacity == 0 {
        return Err(code::INVALID_VALUE);
    }
    let length = text.len().min(capacity - 1);
    std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), length);
    to.add(length).write(0);
    Ok(())
}

fn initialised() -> Cu<()> {
    if INITIALISED.load(Ordering::Acquire) { Ok(()) } else { Err(code::NOT_INITIALIZED) }
}

fn device(ordinal: c_int) -> Cu<&'static Device> {
    initialised()?;
    gpu().device(usize::try_from(ordinal).map_err(|_| code::INVALID_DEVICE)?)
}

/// The stream of a handle; 0 to 2 are the current device's default stream.
pub(crate) fn stream(handle: usize) -> Cu<Arc<Stream>> {
    let device = current()?;
    if handle <= 2 {
        return Ok(device.default_stream());
    }
    let stream = gpu().streams.get(handle)?;
    gpu().devices[stream.device].healthy()?;
    Ok(stream)
}

// ---- devices ----

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> u32 {
    status(|| {
        if gpu().devices.is_empty() {
            return Err(code::NO_DEVICE);
        }
        kernel::catch_faults();
        INITIALISED.store(true, Ordering::Release);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> u32 {
    status(|| put(version, gpu().settings.driver_version.load(Ordering::Relaxed) as c_int))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    status(|| {
        initialised()?;
        put(count, gpu().devices.len() as c_int)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(out: *mut c_int, ordinal: c_int) -> u32 {
    status(|| put(out, device(ordinal)?.id as c_int))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, capacity: c_int, ordinal: c_int) -> u32 {
    status(|| put_text(name, capacity.max(0) as usize, &device(ordinal)?.spec().name))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], ordinal: c_int) -> u32 {
    status(|| put(uuid, uuid_of(device(ordinal)?.id)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], ordinal: c_int) -> u32 {
    cuDeviceGetUuid(uuid, ordinal)
}

/// A fixed identity for each device.
pub(crate) fn uuid_of(id: usize) -> [u8; 16] {
    let mut uuid = *b"virtual-gpu\0\0\0\0\0";
    uuid[15] = id as u8;
    uuid
}

/// PCI place of a device.
pub(crate) fn pci_of(device: &Device) -> String {
    let given = device.read(|s| s.pci.clone());
    if given.is_empty() { format!("00000000:{:02X}:00.0", device.id + 1) } else { given }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, capacity: c_int, ordinal: c_int) -> u32 {
    status(|| {
        let place = pci_of(device(ordinal)?);
        // The driver writes four digits of the domain, NVML eight.
        let short = place.strip_prefix("0000").filter(|p| p.len() == 12).unwrap_or(&place);
        put_text(text, capacity.max(0) as usize, short)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, ordinal: c_int) -> u32 {
    status(|| put(bytes, device(ordinal)?.read(|s| s.memory_bytes) as usize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, ordinal: c_int) -> u32 {
    status(|| put(value, attribute_of(device(ordinal)?, attribute)))
}

/// Values of `CUdevice_attribute`; 0, which means "no", where a virtual device has nothing to say.
fn attribute_of(device: &Device, attribute: c_int) -> c_int {
    let spec = device.spec();
    match attribute {
        1..=3 => 1_024,    // threads a block, block x, block y
        4 => 64,           // block z
        5 => c_int::MAX,   // grid x
        6 | 7 => 65_535,   // grid y, z
        8 => 48 << 10,     // shared memory a block
        9 => 64 << 10,     // constant memory
        10 => 32,          // warp
        12 | 82 => 65_536, // registers a block, a multiprocessor
        13 => spec.nvml.clock_mhz as c_int * 1_000,
        15 | 31 | 40 | 41 => 1, // copies overlap, kernels run side by side, two copy engines, one address space
        16 => spec.multiprocessors as c_int,
        33 => device.id as c_int + 1, // PCI bus
        36 => spec.nvml.memory_clock_mhz as c_int * 1_000,
        37 => 5_120,    // width of the memory bus in bits
        38 => 50 << 20, // second-level cache
        39 => 2_048,    // threads a multiprocessor
        75 => spec.compute_capability[0] as c_int,
        76 => spec.compute_capability[1] as c_int,
        78 => 1,                                 // stream priorities
        81 => 228 << 10,                         // shared memory a multiprocessor
        97 => kernel::SHARED_BYTES_MAX as c_int, // shared memory a block that opts in
        99 => 1,                                 // host memory can be registered
        106 => 32,                               // blocks a multiprocessor
        115 => 1,                                // memory pools: allocation in stream order
        _ => 0,
    }
}

// ---- contexts: one a device ----

/// Handle of a device's primary context.
fn context_of(device: &Device) -> usize {
    0xC700_0000 + device.id * 16
}

fn device_of_context(context: usize) -> Cu<&'static Device> {
    let offset = context.checked_sub(0xC700_0000).ok_or(code::INVALID_CONTEXT)?;
    if !offset.is_multiple_of(16) {
        return Err(code::INVALID_CONTEXT);
    }
    gpu().device(offset / 16).map_err(|_| code::INVALID_CONTEXT)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, ordinal: c_int) -> u32 {
    status(|| {
        let device = device(ordinal)?;
        if device.is_lost() {
            return device.healthy();
        }
        put(context, context_of(device))?;
        device.primary_references.fetch_add(1, Ordering::AcqRel);
        device.publish();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(ordinal: c_int) -> u32 {
    status(|| {
        let device = device(ordinal)?;
        let one_less = |references: usize| references.checked_sub(1);
        let before = device.primary_references.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
        device.publish();
        match before {
            Ok(1) => {
                end_context(device);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(_) => Err(code::INVALID_CONTEXT),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(ordinal: c_int) -> u32 {
    status(|| {
        end_context(device(ordinal)?);
        Ok(())
    })
}

/// The end of a context frees what it held, and its error ends with it unless the device is lost.
fn end_context(device: &Device) {
    forget_captures(device.id, None);
    let _ = device.synchronize();
    gpu().memory.free_all(device.id);
    lock(&device.peers).clear();
    device.forget_error();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxGetState(ordinal: c_int, flags: *mut c_uint, active: *mut c_int) -> u32 {
    status(|| {
        let references = device(ordinal)?.primary_references.load(Ordering::Acquire);
        put(flags, 0)?;
        put(active, c_int::from(references > 0))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> u32 {
    status(|| {
        initialised()?;
        put(context, current_unchecked().map_or(0, context_of))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> u32 {
    status(|| {
        initialised()?;
        set_current(if context == 0 { None } else { Some(device_of_context(context)?.id) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(out: *mut c_int) -> u32 {
    status(|| put(out, current_unchecked().ok_or(code::INVALID_CONTEXT)?.id as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> u32 {
    status(|| {
        let device = current()?;
        check_capture(device.id)?;
        device.synchronize()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetFlags(_flags: c_uint) -> u32 {
    status(|| current().map(|_| ()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> u32 {
    status(|| {
        current()?;
        put(least, 0)?;
        put(greatest, -5)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, ordinal: c_int, peer: c_int) -> u32 {
    status(|| {
        let (from, to) = (device(ordinal)?.id, device(peer)?.id);
        put(can, c_int::from(from != to && gpu().settings.peer_access.load(Ordering::Relaxed)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(peer: usize, flags: c_uint) -> u32 {
    status(|| {
        let (device, peer) = (current()?, device_of_context(peer)?);
        if flags != 0 || device.id == peer.id {
            return Err(code::INVALID_VALUE);
        }
        if !gpu().settings.peer_access.load(Ordering::Relaxed) {
            return Err(code::PEER_ACCESS_UNSUPPORTED);
        }
        let new = lock(&device.peers).insert(peer.id);
        if new { Ok(()) } else { Err(code::PEER_ACCESS_ALREADY_ENABLED) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDisablePeerAccess(peer: usize) -> u32 {
    status(|| {
        let (device, peer) = (current()?, device_of_context(peer)?);
        let known = lock(&device.peers).remove(&peer.id);
        if known { Ok(()) } else { Err(code::PEER_ACCESS_NOT_ENABLED) }
    })
}

// ---- streams and events ----

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(out: *mut usize, flags: c_uint) -> u32 {
    cuStreamCreateWithPriority(out, flags, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(out: *mut usize, flags: c_uint, _priority: c_int) -> u32 {
    status(|| {
        let device = current()?;
        if flags > 1 || out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        put(out, gpu().streams.insert(Stream::start(device.id)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(handle: usize) -> u32 {
    status(|| {
        let stream = gpu().streams.remove(handle)?;
        forget_captures(stream.device, Some(&stream));
        stream.close();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(handle: usize) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        stream.refuse_capture(code::STREAM_CAPTURE_UNSUPPORTED)?;
        stream.synchronize();
        gpu().devices[stream.device].healthy()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(handle: usize) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        stream.refuse_capture(code::STREAM_CAPTURE_UNSUPPORTED)?;
        if stream.is_idle() { Ok(()) } else { Err(code::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(handle: usize, event: usize, _flags: c_uint) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        gpu().events.get(event)?.hold(&stream)
    })
}

type HostFunction = unsafe extern "C" fn(*mut c_void);

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchHostFunc(handle: usize, function: Option<HostFunction>, argument: *mut c_void) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        let function = function.ok_or(code::INVALID_VALUE)?;
        let argument = argument as usize;
        stream.submit(0, move |_| function(argument as *mut c_void));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(out: *mut usize, flags: c_uint) -> u32 {
    status(|| {
        current()?;
        if out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        put(out, gpu().events.insert(Event::new(flags & 2 != 0)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: usize) -> u32 {
    status(|| gpu().events.remove(event).map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: usize, handle: usize) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        gpu().events.get(event)?.record(&stream);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: usize) -> u32 {
    status(|| {
        let device = current()?;
        gpu().events.get(event)?.synchronize()?;
        device.healthy()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: usize) -> u32 {
    status(|| {
        let event = gpu().events.get(event)?;
        current()?;
        event.query()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize) -> u32 {
    status(|| {
        current()?;
        let (from, to) = (gpu().events.get(from)?, gpu().events.get(to)?);
        put(milliseconds, to.milliseconds_since(&from)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(milliseconds: *mut f32, from: usize, to: usize) -> u32 {
    cuEventElapsedTime(milliseconds, from, to)
}

// ---- memory ----

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(out: *mut usize, bytes: usize) -> u32 {
    status(|| {
        let device = current()?;
        check_capture(device.id)?;
        gpu().check_collectives(device.id, "cuMemAlloc")?;
        put(out, gpu().memory.allocate(bytes, Home::Device(device.id))?)
    })
}

/// Waits for the device first, as the driver does.
#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: usize) -> u32 {
    status(|| {
        let device = current()?;
        if address == 0 {
            return Ok(());
        }
        let range = gpu().memory.find(address).ok_or(code::INVALID_VALUE)?;
        let Home::Device(owner) = range.home else { return Err(code::INVALID_VALUE) };
        check_capture(device.id)?;
        gpu().check_collectives(device.id, "cuMemFree")?;
        gpu().devices[owner].synchronize()?;
        gpu().memory.free(address, false)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(out: *mut usize, bytes: usize, handle: usize) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        stream.refuse_capture(code::NOT_SUPPORTED)?;
        gpu().check_collectives(stream.device, "cuMemAllocAsync")?;
        if bytes == 0 {
            return put(out, 0);
        }
        put(out, gpu().memory.allocate(bytes, Home::Device(stream.device))?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: usize, handle: usize) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        if address == 0 {
            return Ok(());
        }
        stream.refuse_capture(code::NOT_SUPPORTED)?;
        let range = gpu().memory.find(address).ok_or(code::INVALID_VALUE)?;
        if range.start != address || range.home == Home::Host {
            return Err(code::INVALID_VALUE);
        }
        stream.push(move |start| {
            if gpu().memory.free(address, false).is_err() {
                gpu().tell(format!("{address:#x} was freed twice"));
            }
            start
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    status(|| {
        let device = current()?;
        let bytes = device.read(|s| s.memory_bytes);
        put(free, bytes.saturating_sub(device.used_by_all()) as usize)?;
        put(total, bytes as usize)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(out: *mut usize, bytes: usize, _flags: c_uint) -> u32 {
    status(|| {
        let device = current()?;
        check_capture(device.id)?;
        gpu().check_collectives(device.id, "cuMemHostAlloc")?;
        put(out, gpu().memory.allocate(bytes, Home::Host)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocHost_v2(out: *mut usize, bytes: usize) -> u32 {
    cuMemHostAlloc(out, bytes, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: usize) -> u32 {
    status(|| {
        let device = current()?;
        check_capture(device.id)?;
        gpu().check_collectives(device.id, "cuMemFreeHost")?;
        gpu().memory.free(address, true)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(address: usize, bytes: usize, _flags: c_uint) -> u32 {
    status(|| {
        let device = current()?;
        check_capture(device.id)?;
        gpu().check_collectives(device.id, "cuMemHostRegister")?;
        gpu().memory.register(address, bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(address: usize) -> u32 {
    status(|| {
        let device = current()?;
        check_capture(device.id)?;
        gpu().check_collectives(device.id, "cuMemHostUnregister")?;
        gpu().memory.unregister(address)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetDevicePointer_v2(out: *mut usize, address: usize, _flags: c_uint) -> u32 {
    status(|| {
        current()?;
        if !gpu().memory.is_pinned(address, 1) {
            return Err(code::INVALID_VALUE);
        }
        put(out, address)
    })
}

/// The attributes that tell what an address is; `NOT_SUPPORTED` for the others.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(data: *mut c_void, attribute: c_int, address: usize) -> u32 {
    status(|| {
        let range = gpu().memory.find(address);
        let registration = gpu().memory.registration(address);
        let (start, size) = match (range, registration) {
            (Some(range), _) => (range.start, range.size),
            (None, Some(registration)) => registration,
            (None, None) => return Err(code::INVALID_VALUE),
        };
        let home = range.map_or(Home::Host, |r| r.home);
        let owner = match home {
            Home::Device(id) => &gpu().devices[id],
            Home::Host => current()?,
        };
        match attribute {
            1 => put(data.cast::<usize>(), context_of(owner)),
            2 => put(data.cast::<c_uint>(), if home == Home::Host { 1 } else { 2 }),
            3 => put(data.cast::<usize>(), address),
            4 if home == Home::Host => put(data.cast::<usize>(), address),
            4 => Err(code::INVALID_VALUE),
            8 => put(data.cast::<c_uint>(), 0),
            9 => put(data.cast::<c_int>(), owner.id as c_int),
            11 => put(data.cast::<usize>(), start),
            12 => put(data.cast::<usize>(), size),
            _ => Err(code::NOT_SUPPORTED),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAddressRange_v2(start: *mut usize, size: *mut usize, address: usize) -> u32 {
    status(|| {
        let range = gpu().memory.find(address).ok_or(code::NOT_FOUND)?;
        if !start.is_null() {
            put(start, range.start)?;
        }
        if size.is_null() { Ok(()) } else { put(size, range.size) }
    })
}

// ---- copies ----

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

fn finish(stream: &Stream) -> Cu<()> {
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
            // SAFETY: the target was checked when the copy was issued.
            unsafe { *(to as *mut u8).add(bytes / 2) ^= 0x10 };
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
    let cost = clock::copy(&gpu().devices[stream.device], bytes, Way::Within);
    stream.submit(cost, move |_| {
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

// ---- modules and kernels ----

fn load(out: *mut usize, image: impl FnOnce() -> Cu<Vec<u8>>) -> Cu<()> {
    let device = current()?;
    gpu().check_collectives(device.id, "cuModuleLoad")?;
    let handle = gpu().modules.insert(Module::load(&image()?)?);
    // SAFETY: the caller vouches for the place of the handle; null is refused.
    unsafe { put(out, handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(out: *mut usize, image: *const u8) -> u32 {
    status(|| load(out, || kernel::image_at(image)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    out: *mut usize,
    image: *const u8,
    _count: c_uint,
    _options: *const c_int,
    _values: *const *mut c_void,
) -> u32 {
    cuModuleLoadData(out, image)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoad(out: *mut usize, path: *const c_char) -> u32 {
    status(|| {
        if path.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let mut image = kernel::read_file(&CStr::from_ptr(path).to_string_lossy())?;
        image.push(0);
        load(out, || kernel::image_at(image.as_ptr()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: usize) -> u32 {
    status(|| {
        gpu().check_collectives(current()?.id, "cuModuleUnload")?;
        let module = gpu().modules.remove(module)?;
        gpu().functions.retain(|function| !function.is_of(&module));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(out: *mut usize, module: usize, name: *const c_char) -> u32 {
    status(|| {
        current()?;
        if name.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let function = gpu().modules.get(module)?.function(&CStr::from_ptr(name).to_string_lossy())?;
        put(out, gpu().functions.insert(function))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetGlobal_v2(
    out: *mut usize,
    bytes: *mut usize,
    module: usize,
    name: *const c_char,
) -> u32 {
    status(|| {
        current()?;
        if name.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let (address, size) = gpu().modules.get(module)?.global(&CStr::from_ptr(name).to_string_lossy())?;
        if !bytes.is_null() {
            put(bytes, size)?;
        }
        if out.is_null() { Ok(()) } else { put(out, address) }
    })
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DYNAMIC_SHARED_BYTES: c_int = 8;

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: usize, attribute: c_int, value: c_int) -> u32 {
    status(|| {
        let function = gpu().functions.get(function)?;
        match attribute {
            DYNAMIC_SHARED_BYTES if (0..=kernel::SHARED_BYTES_MAX as c_int).contains(&value) => {
                function.shared_bytes.store(value, Ordering::Relaxed);
                Ok(())
            }
            9 => Ok(()), // a preference
            _ => Err(code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: usize) -> u32 {
    status(|| {
        let function = gpu().functions.get(function)?;
        let binary = current()?.read(|s| s.compute_capability[0] * 10 + s.compute_capability[1]) as c_int;
        let known = match attribute {
            0 => 1_024,
            1..=3 => 0,
            4 => 32,
            5 | 6 => binary,
            DYNAMIC_SHARED_BYTES => function.shared_bytes.load(Ordering::Relaxed),
            _ => return Err(code::NOT_SUPPORTED),
        };
        put(value, known)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetCacheConfig(function: usize, _preference: c_int) -> u32 {
    status(|| gpu().functions.get(function).map(|_| ()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: usize,
    threads: c_int,
    shared_bytes: usize,
) -> u32 {
    status(|| {
        gpu().functions.get(function)?;
        if threads <= 0 {
            return Err(code::INVALID_VALUE);
        }
        let by_memory = (228 << 10) / shared_bytes.max(1);
        put(blocks, (2_048 / threads).min(32).min(by_memory as c_int))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    handle: usize,
    parameters: *const *const u8,
    extra: *const *const c_void,
) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        if !extra.is_null() {
            return Err(code::NOT_SUPPORTED);
        }
        let function = gpu().functions.get(function)?;
        let geometry = Geometry { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
        kernel::launch(&function, geometry, &stream, parameters)
    })
}

// ---- errors ----

/// Name and text of a `CUresult`; `None` where the double never answers it.
fn words_of(error: u32) -> Option<(&'static CStr, &'static CStr)> {
    Some(match error {
        0 => (c"CUDA_SUCCESS", c"no error"),
        code::INVALID_VALUE => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        code::OUT_OF_MEMORY => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        code::NOT_INITIALIZED => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
        46 => (c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
        code::NO_DEVICE => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
        code::INVALID_DEVICE => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        code::INVALID_IMAGE => (c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
        code::INVALID_CONTEXT => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        code::NO_BINARY_FOR_GPU => {
            (c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device")
        }
        214 => (c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered"),
        code::PEER_ACCESS_UNSUPPORTED => {
            (c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", c"peer access is not supported between these two devices")
        }
        code::INVALID_PTX => (c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
        code::FILE_NOT_FOUND => (c"CUDA_ERROR_FILE_NOT_FOUND", c"file not found"),
        code::INVALID_HANDLE => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
        code::NOT_FOUND => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        code::NOT_READY => (c"CUDA_ERROR_NOT_READY", c"device not ready"),
        code::ILLEGAL_ADDRESS => (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
        code::LAUNCH_OUT_OF_RESOURCES => {
            (c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch")
        }
        702 => (c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated"),
        code::PEER_ACCESS_ALREADY_ENABLED => {
            (c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", c"peer access is already enabled")
        }
        code::PEER_ACCESS_NOT_ENABLED => (c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", c"peer access has not been enabled"),
        710 => (c"CUDA_ERROR_ASSERT", c"device-side assert triggered"),
        code::HOST_MEMORY_ALREADY_REGISTERED => (
            c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
            c"part or all of the requested memory range is already mapped",
        ),
        code::HOST_MEMORY_NOT_REGISTERED => {
            (c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"pointer does not correspond to a registered memory region")
        }
        code::MISALIGNED_ADDRESS => (c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
        code::LAUNCH_FAILED => (c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
        code::NOT_PERMITTED => (c"CUDA_ERROR_NOT_PERMITTED", c"operation not permitted"),
        code::NOT_SUPPORTED => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
        code::STREAM_CAPTURE_UNSUPPORTED => {
            (c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing")
        }
        code::STREAM_CAPTURE_INVALIDATED => {
            (c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"operation failed due to a previous error during capture")
        }
        code::STREAM_CAPTURE_UNMATCHED => {
            (c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", c"capture was not initiated in this stream")
        }
        code::STREAM_CAPTURE_UNJOINED => (c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"capturing stream has unjoined work"),
        code::STREAM_CAPTURE_ISOLATION => {
            (c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", c"dependency created on uncaptured work in another stream")
        }
        code::CAPTURED_EVENT => {
            (c"CUDA_ERROR_CAPTURED_EVENT", c"operation not permitted on an event last recorded in a capturing stream")
        }
        999 => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
        _ => return None,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: u32, out: *mut *const c_char) -> u32 {
    status(|| put(out, words_of(error).ok_or(code::INVALID_VALUE)?.0.as_ptr()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: u32, out: *mut *const c_char) -> u32 {
    status(|| put(out, words_of(error).ok_or(code::INVALID_VALUE)?.1.as_ptr()))
}
