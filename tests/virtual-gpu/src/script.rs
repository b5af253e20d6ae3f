//! What the virtual machine is like and what goes wrong on it: the words of a script.

use serde::{Deserialize, Serialize};

/// The whole description; every field has a default, unknown fields are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// One entry a device; their number is fixed once the first call is made.
    pub devices: Vec<DeviceSpec>,
    /// In which order the threads of a block run between two synchronisations.
    pub order: Order,
    /// Alignment of device buffers in bytes, a power of two of 16 to 4096. Smaller finds overruns of fewer bytes.
    pub alignment: usize,
    /// Fills fresh device memory and dynamic shared memory with 0xFF, which reads as NaN. Without, memory that nothing
    /// touches takes none of the host's.
    pub poison: bool,
    /// How many threads run the blocks of one kernel. One makes float atomics repeatable.
    pub threads: usize,
    /// Each piece of work in a stream is held up by a random time of up to so many microseconds, so that a forgotten wait
    /// between streams shows.
    pub jitter_us: u64,
    /// Calls that can deadlock beside a pending collective fail with `CUDA_ERROR_NOT_PERMITTED`.
    pub strict: bool,
    /// Whether devices can map each other's memory.
    pub peer_access: bool,
    /// Ranks of a communicator may be in several processes that share `VGPU_DIR`; slower than threads.
    pub rank_processes: bool,
    /// What `cuDriverGetVersion` answers, as 1000 × major + 10 × minor.
    pub driver_version: i32,
    /// What goes wrong, in any order.
    pub faults: Vec<Fault>,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            devices: vec![DeviceSpec::default()],
            order: Order::Forward,
            alignment: 256,
            poison: true,
            threads: 1,
            jitter_us: 0,
            strict: false,
            peer_access: true,
            rank_processes: false,
            driver_version: 12_080,
            faults: Vec::new(),
        }
    }
}

impl Script {
    /// A script of `count` equal devices of `memory_bytes` each.
    pub fn with_devices(count: usize, memory_bytes: u64) -> Self {
        let device = DeviceSpec { memory_bytes, ..DeviceSpec::default() };
        Script { devices: vec![device; count], ..Script::default() }
    }
}

/// Order of the threads of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Thread 0 first.
    #[default]
    Forward,
    /// Last thread first: shows many a missing barrier.
    Reverse,
    /// Shuffled by the number of the launch.
    Random,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceSpec {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// As the driver and NVML tell it.
    pub name: String,
    /// Major and minor.
    pub compute_capability: [u32; 2],
    /// PCI place, `domain:bus:device.function`; made up from the index where empty.
    pub pci: String,
    /// How many times slower than its figures the device is, in modelled and in real time.
    pub slow_factor: f64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Dense half-precision operations per second of the model; a quarter of it for f32 with TF32, a sixteenth for f32.
    pub flops: f64,
    /// Device memory bandwidth of the model, bytes per second.
    pub memory_bandwidth: f64,
    /// Bandwidth to the host of the model, bytes per second.
    pub host_bandwidth: f64,
    /// Bandwidth to other devices of the model, bytes per second.
    pub link_bandwidth: f64,
    /// What NVML tells.
    pub nvml: NvmlSpec,
}

impl Default for DeviceSpec {
    fn default() -> Self {
        DeviceSpec {
            memory_bytes: 1 << 30,
            name: "Virtual GPU".into(),
            compute_capability: [9, 0],
            pci: String::new(),
            slow_factor: 1.0,
            multiprocessors: 32,
            flops: 100e12,
            memory_bandwidth: 1e12,
            host_bandwidth: 25e9,
            link_bandwidth: 100e9,
            nvml: NvmlSpec::default(),
        }
    }
}

/// What NVML tells of a device, beyond what the driver knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NvmlSpec {
    /// Degrees Celsius.
    pub temperature: u32,
    /// Milliwatts drawn.
    pub power_mw: u32,
    /// Milliwatts allowed.
    pub power_limit_mw: u32,
    /// Per cent.
    pub fan_percent: u32,
    /// MHz of the multiprocessors.
    pub clock_mhz: u32,
    /// MHz of the memory.
    pub memory_clock_mhz: u32,
    /// Bits of `nvmlClocksThrottleReason*`.
    pub throttle_reasons: u64,
    /// Corrected memory errors since the driver was loaded.
    pub ecc_corrected: u64,
    /// Uncorrected memory errors since the driver was loaded.
    pub ecc_uncorrected: u64,
    /// Generation of the PCIe link.
    pub pcie_generation: u32,
    /// Lanes of the PCIe link.
    pub pcie_width: u32,
    /// KB/s sent over PCIe.
    pub pcie_sent_kbs: u32,
    /// KB/s received over PCIe.
    pub pcie_received_kbs: u32,
    /// NVLinks that are up, each to the next device in turn.
    pub nvlinks: u32,
    /// `nvmlGpuTopologyLevel_t` between this device and any other (10: one PCIe switch, 30: one host bridge).
    pub topology_level: u32,
    /// Names of NVML functions that answer `NOT_SUPPORTED`, as on a card that lacks them.
    pub unsupported: Vec<String>,
}

impl Default for NvmlSpec {
    fn default() -> Self {
        NvmlSpec {
            temperature: 40,
            power_mw: 75_000,
            power_limit_mw: 350_000,
            fan_percent: 30,
            clock_mhz: 1_980,
            memory_clock_mhz: 2_619,
            throttle_reasons: 0,
            ecc_corrected: 0,
            ecc_uncorrected: 0,
            pcie_generation: 4,
            pcie_width: 16,
            pcie_sent_kbs: 1_000,
            pcie_received_kbs: 2_000,
            nvlinks: 0,
            topology_level: 30,
            unsupported: Vec::new(),
        }
    }
}

/// Something that goes wrong. Counts start when the fault is armed, at 1 for the next one; each happens once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The n-th allocation of a device fails with `CUDA_ERROR_OUT_OF_MEMORY`.
    OutOfMemory {
        /// Device.
        device: usize,
        /// Which allocation.
        allocation: u64,
    },
    /// The n-th launch of a device ends with `CUDA_ERROR_ILLEGAL_ADDRESS`, which sticks.
    IllegalAddress {
        /// Device.
        device: usize,
        /// Which launch.
        launch: u64,
    },
    /// The n-th launch of a device and all that follows fail with a code, until `revive`.
    DeviceLost {
        /// Device.
        device: usize,
        /// Which launch.
        launch: u64,
        /// `CUresult`, such as 46 (unavailable) or 214 (uncorrectable ECC error).
        code: u32,
    },
    /// The n-th launch of a device does not end before the faults are cleared.
    LaunchHang {
        /// Device.
        device: usize,
        /// Which launch.
        launch: u64,
    },
    /// The n-th copy from a device to another one delivers one wrong byte.
    WrongPeerCopy {
        /// Device copied from.
        device: usize,
        /// Which copy.
        copy: u64,
    },
    /// The n-th registration of host memory on a device fails with `CUDA_ERROR_OUT_OF_MEMORY`, as beyond the limit on
    /// locked memory.
    HostRegistration {
        /// Device.
        device: usize,
        /// Which registration.
        registration: u64,
    },
    /// The n-th collective of a device is refused with an `ncclResult_t`, such as 2 (system error) or 6 (remote error).
    CollectiveError {
        /// Device.
        device: usize,
        /// Which collective.
        collective: u64,
        /// `ncclResult_t`.
        code: u32,
    },
    /// The n-th collective of a device delivers one wrong byte to that device, if it delivers any.
    WrongCollective {
        /// Device.
        device: usize,
        /// Which collective.
        collective: u64,
    },
    /// A function of NVML does not return before the faults are cleared; happens each time.
    NvmlHang {
        /// Name of the function.
        call: String,
    },
    /// An Xid is reported through NVML's event sets after the n-th launch.
    Xid {
        /// Device.
        device: usize,
        /// Which launch.
        launch: u64,
        /// Number of the Xid, such as 79 (fallen off the bus).
        code: u64,
    },
}
