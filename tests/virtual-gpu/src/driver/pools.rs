//! The memory pool of each device: freed memory goes back at once, whatever threshold is set.

use super::{device, put, status};
use crate::state::{Cu, Device, code, gpu};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

const FIRST_POOL: usize = 0x4800_0000;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: c_int = 4;
/// Devices whose threshold is kept.
const DEVICES: usize = 64;

static THRESHOLDS: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

fn device_of(pool: usize) -> Cu<&'static Device> {
    let offset = pool.checked_sub(FIRST_POOL).filter(|offset| offset.is_multiple_of(16)).ok_or(code::INVALID_VALUE)?;
    gpu().device(offset / 16).map_err(|_| code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetDefaultMemPool(out: *mut usize, ordinal: c_int) -> u32 {
    status(|| put(out, FIRST_POOL + device(ordinal)?.id * 16))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetMemPool(out: *mut usize, ordinal: c_int) -> u32 {
    cuDeviceGetDefaultMemPool(out, ordinal)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolSetAttribute(pool: usize, attribute: c_int, value: *const c_void) -> u32 {
    status(|| {
        let device = device_of(pool)?;
        if value.is_null() {
            return Err(code::INVALID_VALUE);
        }
        match attribute {
            1..=3 => Ok(()), // how freed memory may be used again
            RELEASE_THRESHOLD => {
                let threshold = THRESHOLDS.get(device.id).ok_or(code::INVALID_VALUE)?;
                threshold.store(*value.cast::<u64>(), Ordering::Relaxed);
                Ok(())
            }
            _ => Err(code::NOT_SUPPORTED),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolGetAttribute(pool: usize, attribute: c_int, value: *mut c_void) -> u32 {
    status(|| {
        let device = device_of(pool)?;
        match attribute {
            1..=3 => put(value.cast::<c_int>(), 1),
            RELEASE_THRESHOLD => {
                let threshold = THRESHOLDS.get(device.id).ok_or(code::INVALID_VALUE)?;
                put(value.cast::<u64>(), threshold.load(Ordering::Relaxed))
            }
            5 | 7 => put(value.cast::<u64>(), device.used.load(Ordering::Acquire)), // reserved, used
            _ => Err(code::NOT_SUPPORTED),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(pool: usize, _bytes: usize) -> u32 {
    status(|| device_of(pool).map(|_| ()))
}
