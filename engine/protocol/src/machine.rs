//! A sample of the machine: what `anneal machine` prints and screens draw. The planner's view is `facts::MachineFacts`.

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
