//! A sample of the machine: what `anneal machine` prints and screens draw. The planner's view is `facts::MachineFacts`.

use crate::facts::DeviceFacts;
use crate::problem::Problem;
use serde::{Deserialize, Serialize};

/// The machine at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MachineSample {
    /// Graphics cards, in the driver's order; empty where there is no driver.
    pub gpus: Vec<GpuSample>,
    /// Everything else.
    pub host: HostSample,
    /// Why cards are missing or left out, where a driver is there but does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub problem: Option<Problem>,
}

/// One graphics card. `None` where the card or the driver has no answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct GpuSample {
    /// Name of the product.
    pub name: Option<String>,
    /// Bytes in all.
    pub memory_total: Option<u64>,
    /// Bytes in use by anyone.
    pub memory_used: Option<u64>,
    /// Share of the last sample period with a kernel at work, in percent.
    pub utilization: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// Watts drawn.
    pub power: Option<f64>,
    /// Watts allowed.
    pub power_limit: Option<f64>,
    /// Clocks.
    pub clocks: GpuClocks,
    /// Processes with memory on the card.
    pub processes: Option<Vec<GpuProcess>>,
    /// Links to the host and to other cards.
    pub links: GpuLinks,
    /// Place on the PCI bus, as "0000:01:00.0".
    pub pci: Option<String>,
    /// Fan speed in percent of its most.
    pub fan: Option<u32>,
    /// What holds the clocks back now; empty where nothing does.
    pub throttle: Option<Vec<Throttle>>,
    /// Errors of its memory since the driver was loaded.
    pub ecc: Option<GpuEcc>,
    /// The newest critical error that the driver told of while this process watched.
    pub xid: Option<GpuXid>,
}

/// What holds a card's clocks back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// It draws as much power as it may.
    PowerCap,
    /// It is too hot.
    Thermal,
    /// The power supply pulled a brake.
    PowerBrake,
    /// Its hardware slowed it down for another reason.
    Hardware,
    /// Somebody set its clocks.
    Setting,
    /// It follows a slower card of its group.
    SyncBoost,
}

/// Memory errors of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct GpuEcc {
    /// Put right by the card.
    pub corrected: u64,
    /// Not put right: what was there is lost.
    pub uncorrected: u64,
}

/// A critical error that the driver told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct GpuXid {
    /// NVIDIA's number of it; 79 is a card that fell off the bus.
    pub code: u64,
    /// When it was heard, milliseconds since the Unix epoch.
    pub at_ms: i64,
}

/// Clocks in MHz.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct GpuClocks {
    /// Of the multiprocessors.
    pub sm: Option<u32>,
    /// Of the memory.
    pub memory: Option<u32>,
}

/// A process with memory on a card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct GpuProcess {
    /// Process id.
    pub pid: u32,
    /// Bytes; `None` where the driver keeps them to itself.
    pub memory: Option<u64>,
}

/// Links of a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct GpuLinks {
    /// PCIe generation now.
    pub pcie_generation: Option<u32>,
    /// PCIe lanes now.
    pub pcie_width: Option<u32>,
    /// Bytes a second that come in over PCIe.
    pub pcie_received: Option<u64>,
    /// Bytes a second that go out over PCIe.
    pub pcie_sent: Option<u64>,
    /// NVLinks that are up.
    pub nvlinks: Option<u32>,
}

/// The host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct HostSample {
    /// CPU model.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: u32,
    /// Bytes of memory (or of the control group's limit).
    pub memory_total: u64,
    /// Bytes in use.
    pub memory_used: u64,
    /// Bytes that can be had without swapping.
    pub memory_available: u64,
    /// Runnable tasks, averaged over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// The disk that holds HOME.
    pub disk: DiskSample,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct DiskSample {
    /// Folder asked about.
    pub path: String,
    /// Bytes in all.
    pub total: u64,
    /// Bytes this user may still write.
    pub free: u64,
}

/// Speeds of the machine as once measured; kept as `HOME/machine.json`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Speeds {
    /// Matrix speed of all cores in GFLOP/s.
    pub gemm_gflops: f64,
    /// Memory speed in GB/s.
    pub memory_gb_per_second: f64,
}

/// What `anneal-trainer probe` finds: the libraries that training on cards needs, and the cards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Probe {
    /// Every library looked for.
    pub libraries: Vec<LibraryFacts>,
    /// Cards that can be trained on, "cuda:0" first.
    pub devices: Vec<DeviceFacts>,
    /// Why there are none although the libraries are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub problem: Option<Problem>,
}

/// A library that was looked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LibraryFacts {
    /// "driver", "nvrtc", "cublaslt", "nccl", "nvml".
    pub name: String,
    /// Without it no card can be trained on; the others bring something more.
    pub required: bool,
    /// Where it was found.
    pub path: Option<String>,
    /// Its version, where it tells.
    pub version: Option<String>,
    /// Why it cannot be used, and how to get it.
    pub problem: Option<Problem>,
}

/// What `anneal doctor` tells: everything that was looked at, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Checkup {
    /// Points.
    pub checks: Vec<Check>,
}

/// One point of a checkup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Check {
    /// A stable name: "driver", "nvrtc", "cublaslt", "nccl", "nvml", "cards", "home", "disk", "logout".
    pub name: String,
    /// How it is.
    pub state: CheckState,
    /// What was found, for people.
    pub found: String,
    /// What is wrong and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub problem: Option<Problem>,
}

/// How a point of a checkup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// As it should be.
    Good,
    /// Something less can be done without it.
    Missing,
    /// It stands in the way of work.
    Bad,
}
