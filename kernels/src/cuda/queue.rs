//! A CUDA stream, with the rooms that its operations share one after another.

use super::{Gpu, Memory};
use crate::device::AllocError;
use cudarc::driver::result::{self, stream};
use cudarc::driver::sys;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes for cuBLASLt to work in: what NVIDIA recommends for its largest devices.
pub(super) const BLAS_BYTES: u64 = 32 << 20;

/// Sums of runs that a reduction keeps: one f64 each.
pub(crate) const RUNS_MAX: usize = 1024;

/// What a stream takes from the start.
pub(super) const STREAM_BYTES: u64 = BLAS_BYTES + 8 * RUNS_MAX as u64;

/// A non-blocking stream of a device.
pub(crate) struct Queue {
    pub(super) gpu: Arc<Gpu>,
    pub(super) raw: sys::CUstream,
    blas_room: Memory,
    /// Held by whoever orders the two stages of a reduction.
    runs: Mutex<Memory>,
    /// Grows with the shapes that come; its address stays while a caller of `with_room` orders work.
    room: Mutex<(Memory, u64)>,
}

// SAFETY: a stream's handle may be used by any thread; the driver orders calls.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Queue {
        let room = |bytes| Memory::raw(gpu, bytes).unwrap_or_else(|error| no_room(gpu, &error));
        let (blas_room, runs, none) = (room(BLAS_BYTES), room(8 * RUNS_MAX as u64), room(0));
        let raw = gpu.expect("stream", stream::create(stream::StreamKind::NonBlocking));
        Queue { gpu: Arc::clone(gpu), raw, blas_room, runs: Mutex::new(runs), room: Mutex::new((none, 0)) }
    }

    /// In which numbers its device multiplies matrices.
    pub(crate) fn compute(&self) -> super::Compute {
        self.gpu.compute()
    }

    pub(super) fn blas_room(&self) -> u64 {
        self.blas_room.at()
    }

    /// Runs `order` with room for the sums of [`RUNS_MAX`] runs.
    pub(crate) fn with_runs(&self, order: impl FnOnce(u64)) {
        order(self.runs.lock().unwrap_or_else(PoisonError::into_inner).at());
    }

    /// Makes sure that `bytes` of room are there.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), AllocError> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        self.grow(&mut room, bytes)
    }

    /// Runs `order` with the address of `bytes` of room: what it orders may use it, one caller after another.
    pub(crate) fn with_room(&self, bytes: u64, order: impl FnOnce(u64)) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        self.grow(&mut room, bytes).unwrap_or_else(|error| no_room(&self.gpu, &error));
        order(room.0.at());
    }

    fn grow(&self, room: &mut (Memory, u64), bytes: u64) -> Result<(), AllocError> {
        if bytes > room.1 {
            *room = (Memory::raw(&self.gpu, 0)?, 0);
            *room = (Memory::raw(&self.gpu, bytes)?, bytes);
        }
        Ok(())
    }

    /// Ends this thread's work where the driver knows of a failure: libraries over it tell only that something failed.
    /// Does not wait.
    pub(crate) fn check(&self, operation: &'static str) {
        // SAFETY: the stream lives as long as this.
        match unsafe { sys::cuStreamQuery(self.raw) }.result() {
            Err(error) if error.0 != sys::CUresult::CUDA_ERROR_NOT_READY => {
                super::DeviceFailure::of_driver(self.gpu.index, operation, error).raise()
            }
            _ => {}
        }
    }

    /// Waits for all work so far; what failed in it ends this thread's work.
    pub(crate) fn synchronise(&self, operation: &'static str) {
        self.gpu.expect(operation, self.gpu.current());
        // SAFETY: the stream lives as long as this.
        self.gpu.expect(operation, unsafe { stream::synchronize(self.raw) });
    }

    /// Orders a copy to the device. The host's memory is staged before this returns.
    pub(crate) fn write<T>(&self, to: u64, from: &[T]) {
        self.gpu.expect("copy_from_host", self.gpu.current());
        if !from.is_empty() {
            // SAFETY: the caller checked that the buffer holds as many elements; pageable memory may go at once.
            let copied = unsafe { result::memcpy_htod_async(to, from, self.raw) };
            self.gpu.expect("copy_from_host", copied);
        }
    }

    /// Copies from the device once all work so far is done, and waits.
    pub(crate) fn read<T>(&self, to: &mut [T], from: u64) {
        self.gpu.expect("read_into", self.gpu.current());
        if !to.is_empty() {
            // SAFETY: the caller checked that the buffer holds as many elements; the wait below ends the loan of `to`.
            let copied = unsafe { result::memcpy_dtoh_async(to, from, self.raw) };
            self.gpu.expect("read_into", copied);
        }
        self.synchronise("read_into");
    }
}

impl Drop for Queue {
    /// What was asked for is done. A failure shows in the next call to the device.
    fn drop(&mut self) {
        if self.gpu.current().is_ok() {
            // SAFETY: made by `new`, given back once.
            unsafe {
                let _ = stream::synchronize(self.raw);
                let _ = stream::destroy(self.raw);
            }
        }
    }
}

fn no_room(gpu: &Gpu, error: &AllocError) -> ! {
    let (kind, name) = (super::FailureKind::OutOfMemory, error.to_string());
    super::DeviceFailure { device: gpu.index, operation: "room for operations", kind, name, code: 2 }.raise()
}
