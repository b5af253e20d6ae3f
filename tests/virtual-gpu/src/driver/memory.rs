//! Allocation, registration, and what an address is.

use super::devices::context_of;
use super::{put, status, stream};
use crate::graph::check_capture;
use crate::memory::Home;
use crate::state::{code, current, gpu};
use std::ffi::{c_int, c_uint, c_void};

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
        if gpu().faults.registration(device.id) {
            return Err(code::OUT_OF_MEMORY);
        }
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
