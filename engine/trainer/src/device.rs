//! The device of a name: "cpu", or "cuda:0" and on.

use crate::failure;
use kernels::{Compute, Device};
use protocol::job::Precision;
use protocol::{Code, Outcome, Problem};

/// Opens it; the CPU with at most `threads` threads.
/// Errors: `NotFound` for a name of no kind of device, `DeviceUnavailable` for a card that cannot be had.
pub fn open(name: &str, precision: Precision, threads: u32) -> Outcome<Device> {
    if name == "cpu" {
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        return Ok(Device::cpu((threads as usize).clamp(1, here)));
    }
    let index = name.strip_prefix("cuda:").and_then(|index| index.parse().ok());
    let index = index.ok_or_else(|| {
        Problem::new(Code::NotFound, format!("there is no device named \"{name}\""))
            .field("machine.devices")
            .remedy("name \"cpu\", or a card as \"cuda:0\"")
    })?;
    let compute = match precision {
        Precision::F32 => Compute::F32,
        Precision::Bf16 => Compute::Bf16,
    };
    Device::cuda(index, compute).map_err(|e| failure::of_device(name, &e))
}
