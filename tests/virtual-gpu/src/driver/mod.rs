//! libcuda: the entry points over devices, memory, streams, events, modules and kernels.
//!
//! Left out on purpose, so that a program that needs them fails at once: contexts other than the primary ones, managed
//! memory, textures, cooperative launches. Streams of flag 0 do not wait for the default stream.

#![allow(unsafe_op_in_unsafe_fn, non_snake_case, reason = "C entry points: callers vouch for pointers as CUDA demands")]

mod copies;
mod devices;
mod errors;
mod memory;
mod modules;
mod planes;
mod pools;
mod streams;

pub(crate) use devices::{pci_of, uuid_of};

use crate::state::{Cu, Device, code, current, gpu};
use crate::stream::Stream;
use std::ffi::{c_char, c_int};
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
