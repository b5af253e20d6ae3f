//! A piece of a device's memory.

use super::Gpu;
use crate::device::AllocError;
use cudarc::driver::result;
use std::sync::Arc;

/// Owned memory of a CUDA device. Freeing it waits for the device, so that work in any stream is done with it.
pub(crate) struct Memory {
    gpu: Arc<Gpu>,
    at: u64,
}

impl Memory {
    /// `bytes` of zeros, to be used by any stream at once; none takes nothing.
    pub(crate) fn zeroed(gpu: &Arc<Gpu>, bytes: u64) -> Result<Memory, AllocError> {
        let memory = Memory::raw(gpu, bytes)?;
        if bytes > 0 {
            gpu.expect("alloc", gpu.zero(memory.at, bytes as usize));
        }
        Ok(memory)
    }

    /// `bytes` that hold anything.
    pub(super) fn raw(gpu: &Arc<Gpu>, bytes: u64) -> Result<Memory, AllocError> {
        gpu.expect("alloc", gpu.current());
        if bytes == 0 {
            return Ok(Memory { gpu: Arc::clone(gpu), at: 0 });
        }
        // SAFETY: `drop` frees it once.
        match unsafe { result::malloc_sync(bytes as usize) } {
            Ok(at) => Ok(Memory { gpu: Arc::clone(gpu), at }),
            Err(error) if error.0 == cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let (free, total) = result::mem_get_info().unwrap_or_default();
                Err(AllocError::Device { asked: bytes, free: free as u64, total: total as u64 })
            }
            Err(error) => gpu.expect("alloc", Err(error)),
        }
    }

    /// Its address on the device.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.at != 0 && self.gpu.current().is_ok() {
            // SAFETY: from `malloc_sync`, freed once. An error belongs to earlier work and shows in the next call.
            let _ = unsafe { result::free_sync(self.at) };
        }
    }
}
