//! A virtual GPU: a test double of libcuda, libnvrtc, libcublas, libcublasLt, libnccl and libnvidia-ml at their C interface,
//! so that the unmodified CUDA path runs, and fails on purpose, on machines without a GPU.

mod blas;
mod clock;
mod driver;
mod inject;
mod install;
mod kernel;
mod memory;
mod nvml;
mod nvrtc;
mod product;
mod script;
mod state;
mod stream;

pub use install::{Control, Library, Unavailable, control, install, library_folder, library_folder_without};
pub use script::{DeviceSpec, Fault, NvmlSpec, Order, Script};
