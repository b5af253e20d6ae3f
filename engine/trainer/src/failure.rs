//! Failures of devices as problems: before the work begins, and under way, where a device ends its thread by a panic.

use kernels::cuda::{DeviceError, DeviceFailure, FailureKind};
use protocol::{Code, Problem};
use std::any::Any;

/// A device that cannot be had.
pub fn of_device(name: &str, error: &DeviceError) -> Problem {
    Problem::new(Code::DeviceUnavailable, format!("{name} cannot be used"))
        .why(error.to_string())
        .field("machine.devices")
        .kept("nothing was changed")
        .remedy("see `anneal doctor`; or set machine.devices = [\"cpu\"]")
}

/// A panic's payload as a problem; that of a device names what happened to it.
pub fn of_panic(panic: &(dyn Any + Send)) -> Problem {
    if let Some(failure) = panic.downcast_ref::<DeviceFailure>() {
        return of_failure(failure);
    }
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    Problem::internal("an assumption inside Anneal does not hold").why(text.unwrap_or("no words were left"))
}

/// What a device said when it failed, and what that means.
fn of_failure(failure: &DeviceFailure) -> Problem {
    let DeviceFailure { device, operation, kind, name, code } = failure;
    let (problem, what, why, remedy) = match kind {
        FailureKind::OutOfMemory => (
            Code::OutOfMemory,
            "has no memory left",
            "another program took it, or an operation needed more than the plan leaves free",
            "close other programs on the card, or set machine.device_memory lower",
        ),
        FailureKind::Lost => (
            Code::DeviceLost,
            "was lost",
            "the card fell off the bus, its memory failed, or the driver was reset",
            "see what dmesg says; restart the machine if it happens again",
        ),
        FailureKind::IllegalAddress => (
            Code::DeviceFault,
            "reached outside its memory",
            "a kernel of ours is wrong, or the card computes wrongly",
            "report it if it happens again on another card",
        ),
        FailureKind::LaunchFailed | FailureKind::Other => (
            Code::DeviceFault,
            "stopped with an error",
            "the driver or a library refused the work",
            "see `anneal doctor` and what dmesg says",
        ),
    };
    Problem::new(problem, format!("cuda:{device} {what}"))
        .why(format!("{why}; {name} ({code}) in {operation}"))
        .remedy(remedy)
}
