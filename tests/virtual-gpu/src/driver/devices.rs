//! Devices, their primary contexts, and who may reach whom.

use super::{INITIALISED, device, initialised, put, put_text, status};
use crate::graph::{check_capture, forget_captures};
use crate::kernel;
use crate::state::{Cu, Device, code, current, current_unchecked, gpu, lock, set_current};
use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::Ordering;

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
pub(super) fn context_of(device: &Device) -> usize {
    0xC700_0000 + device.id * 16
}

pub(super) fn device_of_context(context: usize) -> Cu<&'static Device> {
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
