//! NCCL: one rank's end of a group.

use super::{DeviceError, DeviceFailure, FailureKind, Gpu, Queue, libraries};
use cudarc::nccl::sys::{self, ncclDataType_t as Type, ncclRedOp_t as Operation, ncclResult_t as Status};
use std::ffi::c_void;
use std::sync::Arc;

/// What all ranks of a group name it by: made by one of them, handed to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueId([u8; 128]);

impl UniqueId {
    /// A new one.
    ///
    /// # Errors
    /// [`DeviceError::Library`] without NCCL, [`DeviceError::Call`] where it finds no network interface to meet on.
    pub fn new() -> Result<UniqueId, DeviceError> {
        libraries().nccl.or_error()?;
        let mut id = sys::ncclUniqueId { internal: [0; 128] };
        // SAFETY: the id lives through the call.
        let status = unsafe { sys::ncclGetUniqueId(&mut id) };
        done("making a group's id", status)?;
        Ok(UniqueId(id.internal.map(|c| c as u8)))
    }

    /// As it travels to another process.
    pub fn to_bytes(self) -> [u8; 128] {
        self.0
    }

    /// As another process sent it.
    pub fn from_bytes(bytes: [u8; 128]) -> UniqueId {
        UniqueId(bytes)
    }
}

/// One rank's end of a group of CUDA devices. Dropping it ends what is under way: wait for the stream first.
pub struct Communicator {
    gpu: Arc<Gpu>,
    raw: sys::ncclComm_t,
    rank: usize,
    size: usize,
}

// SAFETY: NCCL allows any thread, one at a time for collectives: they are ordered by the one stream that a rank uses.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl Communicator {
    pub(crate) fn join(gpu: &Arc<Gpu>, rank: usize, size: usize, id: UniqueId) -> Result<Communicator, DeviceError> {
        libraries().nccl.or_error()?;
        gpu.current().map_err(|error| DeviceError::of_driver("joining a group", error))?;
        let id = sys::ncclUniqueId { internal: id.0.map(|byte| byte as _) };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the device's context is current, and the handle is where the call writes it.
        let status = unsafe { sys::ncclCommInitRank(&mut raw, size as i32, id, rank as i32) };
        done("joining a group", status)?;
        Ok(Communicator { gpu: Arc::clone(gpu), raw, rank, size })
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn all_reduce_sum(&self, queue: &Queue, at: u64, len: usize) {
        self.gpu.expect("all_reduce_sum", self.gpu.current());
        if len == 0 {
            return;
        }
        let to = at as *mut c_void;
        // SAFETY: the buffer has `len` floats on this device, and the stream is one of it.
        let status = unsafe {
            sys::ncclAllReduce(to, to, len, Type::ncclFloat32, Operation::ncclSum, self.raw, queue.raw.cast())
        };
        if let Some(failure) = self.failure_of(status) {
            queue.check("all_reduce_sum");
            failure.raise();
        }
    }

    pub(crate) fn failure(&self) -> Option<DeviceFailure> {
        let mut state = Status::ncclSuccess;
        // SAFETY: the communicator is alive, and the state lives through the call.
        let status = unsafe { sys::ncclCommGetAsyncError(self.raw, &mut state) };
        self.failure_of(status).or_else(|| self.failure_of(state))
    }

    fn failure_of(&self, status: Status) -> Option<DeviceFailure> {
        let kind = match status {
            Status::ncclSuccess | Status::ncclInProgress => return None,
            Status::ncclUnhandledCudaError => FailureKind::LaunchFailed,
            Status::ncclRemoteError | Status::ncclSystemError => FailureKind::Lost,
            _ => FailureKind::Other,
        };
        let (device, operation) = (self.gpu.index, "all_reduce_sum");
        Some(DeviceFailure { device, operation, kind, name: format!("{status:?}"), code: status as u32 })
    }
}

impl Drop for Communicator {
    /// Aborts rather than waits: a rank that is gone would keep this one here. An error is of no use to anybody.
    fn drop(&mut self) {
        if self.gpu.current().is_ok() {
            // SAFETY: joined once, left once.
            let _ = unsafe { sys::ncclCommAbort(self.raw) };
        }
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Communicator(rank {} of {} on cuda:{})", self.rank, self.size, self.gpu.index)
    }
}

fn done(operation: &'static str, status: Status) -> Result<(), DeviceError> {
    match status {
        Status::ncclSuccess => Ok(()),
        status => Err(DeviceError::Call { operation, name: format!("{status:?}"), code: status as u32 }),
    }
}
