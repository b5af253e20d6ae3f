//! CUDA devices: finding libraries and devices, memory, streams, and the compiling and launching of kernels.
//!
//! Kernels are shipped as source and compiled by NVRTC for the very device (`compile`), once a machine (`cubins`). Matrix
//! products are cuBLASLt's (`blas`). Nothing of CUDA is linked: libraries are found at run time (`libraries`), and a
//! machine without them has no CUDA devices and no error.
//!
//! A device's modules are loaded when it is opened, and a stream's rooms when it is made; [`crate::Stream::reserve`] makes
//! the room that grows with shapes. After that, training allocates nothing, which collectives need: an allocation beside
//! a waiting collective can block both.

mod alias;
mod blas;
mod communicator;
mod compile;
mod cubins;
mod devices;
mod failure;
mod folders;
#[cfg(test)]
mod gate;
mod gpu;
mod launch;
mod libraries;
mod memory;
mod queue;
mod signature;
#[cfg(test)]
mod tests;

pub use communicator::{Communicator, UniqueId};
pub use devices::{DeviceInfo, devices};
pub use failure::{DeviceError, DeviceFailure, FailureKind};
pub use libraries::{Libraries, Library, Presence, libraries};

pub(crate) use blas::{Product, product};
pub(crate) use gpu::Gpu;
pub(crate) use launch::{Argument, Grid, Launcher, arguments};
pub(crate) use memory::Memory;
pub(crate) use queue::{Queue, RUNS_MAX};

/// In which numbers a CUDA device multiplies matrices. Buffers, sums and all other operations are f32 either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// True f32: never TF32.
    #[default]
    F32,
    /// Operands of matrix products are rounded to bf16, products are added in f32. Attention stays f32.
    Bf16,
}

/// Bytes that a stream takes on its device beside buffers, before [`crate::Stream::reserve`]: they are not in
/// [`crate::Device::bytes_in_use`], so that a plan's table and the device agree, and belong to what a plan leaves free.
pub const STREAM_BYTES: u64 = queue::STREAM_BYTES;

/// Settings of the process that CUDA reads once: kernels are loaded before training, not when they are first launched,
/// which beside a waiting collective can block both.
///
/// # Safety
/// To be called first thing in `main`: no other thread may read or write the environment meanwhile.
pub unsafe fn prepare_process() {
    // SAFETY: the caller promises that this thread is alone.
    unsafe { std::env::set_var("CUDA_MODULE_LOADING", "EAGER") }
}
