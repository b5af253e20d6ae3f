//! What goes wrong with a CUDA device: errors before the work begins, failures under way.
//!
//! An error is returned. A failure is a panic whose payload is a [`DeviceFailure`]: most of them are sticky, the process
//! is the unit that is restarted, and whoever catches the panic can name the reason.

use cudarc::driver::result::DriverError;

/// Why a CUDA device cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A library that is needed was not found, or lacks functions.
    #[error("{library} cannot be used: {why}")]
    Library {
        /// What it is for people: "the NVIDIA driver".
        library: &'static str,
        /// What was looked for, or what it lacks.
        why: String,
    },
    /// There are fewer devices.
    #[error("there is no CUDA device {index}: {count} were found")]
    NoDevice {
        /// The device asked for, from 0.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The device computes no bf16: compute capability 8.0 is the first that does.
    #[error("compute capability {major}.{minor} has no bf16, 8.0 is the first that has")]
    NoBf16 {
        /// Major number of its compute capability.
        major: u32,
        /// Minor number of its compute capability.
        minor: u32,
    },
    /// A kernel was refused by the compiler: a defect, or a compiler too old for the device.
    #[error("the compiler refuses {source_name} for {architecture}: {log}")]
    Compile {
        /// Its file, as `adamw.cu`.
        source_name: String,
        /// As `sm_90`.
        architecture: String,
        /// What the compiler said.
        log: String,
    },
    /// A call failed.
    #[error("{operation} failed: {name} ({code})")]
    Call {
        /// What was being done.
        operation: &'static str,
        /// The library's name of the error.
        name: String,
        /// The library's number of the error.
        code: u32,
    },
}

/// What kind of failure ended a device's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No memory for what an operation needs beside its buffers.
    OutOfMemory,
    /// A kernel reached outside its memory: a defect.
    IllegalAddress,
    /// The device is gone, or its memory cannot be corrected.
    Lost,
    /// A kernel ended by itself, or could not begin.
    LaunchFailed,
    /// Anything else.
    Other,
}

/// The payload of the panic that a device which fails under way ends in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFailure {
    /// The device, from 0.
    pub device: usize,
    /// What was being done when it showed; the cause may be earlier work.
    pub operation: &'static str,
    /// What it means.
    pub kind: FailureKind,
    /// The library's name of the error: `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: String,
    /// The library's number of the error.
    pub code: u32,
}

impl std::fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DeviceFailure { device, operation, kind, name, code } = self;
        write!(f, "cuda:{device} failed in {operation}: {kind:?}, {name} ({code})")
    }
}

impl std::error::Error for DeviceFailure {}

impl DeviceFailure {
    /// Ends the work of this thread with this payload.
    pub(crate) fn raise(self) -> ! {
        std::panic::panic_any(self)
    }

    pub(crate) fn of_driver(device: usize, operation: &'static str, error: DriverError) -> DeviceFailure {
        let code = error.0 as u32;
        DeviceFailure { device, operation, kind: kind_of(code), name: driver_name(error), code }
    }
}

impl DeviceError {
    pub(crate) fn of_driver(operation: &'static str, error: DriverError) -> DeviceError {
        DeviceError::Call { operation, name: driver_name(error), code: error.0 as u32 }
    }
}

/// The driver's errors, sorted by what can be done about them.
fn kind_of(code: u32) -> FailureKind {
    match code {
        2 => FailureKind::OutOfMemory,
        700 | 716..=718 => FailureKind::IllegalAddress,
        // Unavailable, uncorrectable memory, uncorrectable link, context destroyed, system not ready.
        46 | 214 | 220 | 709 | 802 => FailureKind::Lost,
        701 | 702 | 710 | 714 | 715 | 719 | 720 => FailureKind::LaunchFailed,
        _ => FailureKind::Other,
    }
}

fn driver_name(error: DriverError) -> String {
    error.error_name().map_or_else(|_| format!("{:?}", error.0), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_by_what_can_be_done() {
        let kinds = [2, 700, 716, 46, 719, 1].map(kind_of);
        use FailureKind::{IllegalAddress, LaunchFailed, Lost, Other, OutOfMemory};
        assert_eq!(kinds, [OutOfMemory, IllegalAddress, IllegalAddress, Lost, LaunchFailed, Other]);
    }
}
