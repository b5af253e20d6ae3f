//! A virtual GPU: a test double of libcuda, libnvrtc, libcublas, libcublasLt, libnccl and libnvidia-ml at their C interface,
//! so that the unmodified CUDA path runs, and fails on purpose, on machines without a GPU.
//!
//! Kernels are compiled from their unmodified source by g++ and run on the CPU; memory lies between guard pages; streams are
//! threads; collectives are computed in rank order. What it cannot show: speed, numerics of the hardware, inline PTX, races
//! that need weak memory, limits of registers, a host that reads device memory, NVIDIA's own bugs.
//!
//! # In a test
//! ```no_run
//! let script = virtual_gpu::Script::with_devices(2, 1 << 30);
//! match virtual_gpu::install(&script) {
//!     Ok(_) => {} // virtual, or real where `ANNEAL_GPU=real` asks for it
//!     Err(why) => return eprintln!("{why}"), // no g++
//! }
//! // From here on cudarc and nvml-wrapper find the double.
//! virtual_gpu::control().arm(virtual_gpu::Fault::OutOfMemory { device: 0, allocation: 3 });
//! ```
//! A process has one virtual GPU. The first of `install` and `VGPU_SCRIPT` decides how many devices it has; a later `install`
//! changes all the rest. Tests of one process that arm faults must take turns.
//!
//! Programs that were built to be shipped run with `LD_LIBRARY_PATH` set to [`library_folder`], or to
//! [`library_folder_without`] for a machine that lacks some of the libraries.
//!
//! # The script
//! Such programs read their script from the JSON file that `VGPU_SCRIPT` names; without one there is one device of 1 GiB.
//! Every field may be left out, an unknown one is an error that ends the process:
//! ```json
//! {
//!   "devices": [{
//!     "memory_bytes": 1073741824, "name": "Virtual GPU", "compute_capability": [9, 0], "pci": "", "slow_factor": 1.0,
//!     "multiprocessors": 32, "flops": 1e14, "memory_bandwidth": 1e12, "host_bandwidth": 2.5e10, "link_bandwidth": 1e11,
//!     "nvml": {"temperature": 40, "power_mw": 75000, "throttle_reasons": 0, "unsupported": ["nvmlDeviceGetFanSpeed_v2"]}
//!   }],
//!   "order": "forward", "alignment": 256, "poison": true, "threads": 1, "jitter_us": 0, "strict": false, "peer_access": true,
//!   "rank_processes": false, "driver_version": 12080,
//!   "faults": [
//!     {"kind": "out_of_memory", "device": 0, "allocation": 3},
//!     {"kind": "illegal_address", "device": 0, "launch": 10},
//!     {"kind": "device_lost", "device": 1, "launch": 20, "code": 46},
//!     {"kind": "launch_hang", "device": 0, "launch": 5},
//!     {"kind": "wrong_peer_copy", "device": 0, "copy": 1},
//!     {"kind": "host_registration", "device": 0, "registration": 1},
//!     {"kind": "collective_error", "device": 0, "collective": 9, "code": 2},
//!     {"kind": "wrong_collective", "device": 1, "collective": 9},
//!     {"kind": "nvml_hang", "call": "nvmlDeviceGetTemperature"},
//!     {"kind": "xid", "device": 0, "launch": 7, "code": 79}
//!   ]
//! }
//! ```
//! [`Script`] documents each field.
//!
//! # Several processes
//! Processes whose `VGPU_DIR` names the same folder share memory in use and losses of devices, so that a monitor in one
//! process sees what another one uses; [`control_of`] steers any of them from outside. The path of the folder must be short
//! enough for a socket (80 bytes). With `rank_processes` in their scripts they also reach each other through NCCL.
//!
//! Other variables: `VGPU_CXX` (the compiler, g++), `VGPU_CXXFLAGS` (more flags, such as
//! `-fsanitize=bounds,alignment -fsanitize-undefined-trap-on-error`), `VGPU_CACHE` (folder of compiled kernels),
//! `VGPU_LIBRARY` (the library itself).

mod blas;
mod clock;
mod collective;
mod driver;
mod files;
mod graph;
mod inject;
mod install;
mod kernel;
mod memory;
mod nccl;
mod nvml;
mod nvrtc;
mod product;
mod reduce;
mod script;
mod shared;
mod state;
mod stream;

pub use install::{
    Control, Library, Unavailable, control, control_of, install, library_folder, library_folder_without, processes_in,
};
pub use script::{DeviceSpec, Fault, NvmlSpec, Order, Script};
