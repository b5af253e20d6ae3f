//! The machine: what the planner counts with, and samples for people.
//!
//! Not here: probing of CUDA devices for training (`anneal-trainer probe`), and the measuring itself (`anneal-trainer bench`).

mod cards;
mod doctor;
mod gpu;
mod host;
mod xid;

pub use cards::Cards;
pub use doctor::checkup;

use protocol::facts::{DeviceFacts, MachineFacts};
use protocol::machine::{HostSample, MachineSample, Speeds};
use protocol::{Outcome, Problem};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use store::disk::{self, RealDisk};

/// Bytes of `machine.json` that are read: ours has about 200.
const MEASURED_BYTES: u64 = 64 * 1024;
/// Clock assumed where nothing was measured, in GHz.
const ASSUMED_GHZ: f64 = 3.0;
/// Share of a core's arithmetic peak that matrix products reach.
const ASSUMED_SHARE: f64 = 0.8;
/// Memory speed assumed where nothing was measured, in GB/s: two channels of DDR4, half used.
const ASSUMED_GB_PER_SECOND: f64 = 20.0;

/// Cores' share by which others must have calmed down before a measurement is worth repeating.
const CALMER: f64 = 0.5;

/// What the planner counts with. Speeds are those in `HOME/machine.json`, or assumed from the instruction set.
pub fn facts(home: &Path) -> MachineFacts {
    let (memory, cores) = (host::memory(Path::new("/")), host::cores(Path::new("/")));
    let instruction_set = host::instruction_set();
    let speeds = measured(home).unwrap_or_else(|| assumed(cores, instruction_set));
    let cpu = DeviceFacts { name: "cpu".into(), memory_total: memory.total, memory_free: memory.available, card: None };
    MachineFacts {
        cpu: host::cpu_name(Path::new("/")),
        cores,
        instruction_set: instruction_set.into(),
        host_memory_total: memory.total,
        host_memory_available: memory.available,
        disk_free: host::disk(home).free,
        gemm_gflops: speeds.gemm_gflops,
        memory_gb_per_second: speeds.memory_gb_per_second,
        devices: vec![cpu],
        nccl: false,
    }
}

/// A sample of cards and host. Takes at most about two seconds, whatever the driver does.
pub fn sample(home: &Path) -> MachineSample {
    let (gpus, problem) = match gpu::sample() {
        Ok(all) => (all.cards, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let root = Path::new("/");
    let memory = host::memory(root);
    let host = HostSample {
        cpu: host::cpu_name(root),
        cores: host::cores(root),
        memory_total: memory.total,
        memory_used: memory.total.saturating_sub(memory.available),
        memory_available: memory.available,
        load: host::load(root),
        disk: host::disk(home),
    };
    MachineSample { gpus, host, problem }
}

/// Speeds measured before on this very CPU and number of cores; `None` asks for `Bench::Machine` and `remember`.
pub fn measured(home: &Path) -> Option<Speeds> {
    stored(home).map(|found| found.speeds)
}

/// True where speeds were never measured here, or while other programs held more of the cores than they do now.
pub fn wants_measuring(home: &Path) -> bool {
    stored(home).is_none_or(|found| found.load - host::load(Path::new("/"))[0] > CALMER * f64::from(found.cores))
}

fn stored(home: &Path) -> Option<Measured> {
    let bytes = disk::read_whole(&RealDisk, &path(home), MEASURED_BYTES).ok()?;
    let found: Measured = serde_json::from_slice(&bytes).ok()?;
    let here = found.cpu == host::cpu_name(Path::new("/")) && found.cores == host::cores(Path::new("/"));
    let s = found.speeds;
    let sound = [s.gemm_gflops, s.memory_gb_per_second, 1.0 + found.load].iter().all(|x| x.is_finite() && *x > 0.0);
    (here && sound).then_some(found)
}

/// Keeps measured speeds as `HOME/machine.json`; of two measurements the faster, since others can only slow one down.
/// Errors: `DiskFull`, `DiskFailed`.
pub fn remember(home: &Path, speeds: &Speeds) -> Outcome<()> {
    let (cpu, cores) = (host::cpu_name(Path::new("/")), host::cores(Path::new("/")));
    let before = measured(home).unwrap_or(*speeds);
    let speeds = Speeds {
        gemm_gflops: speeds.gemm_gflops.max(before.gemm_gflops),
        memory_gb_per_second: speeds.memory_gb_per_second.max(before.memory_gb_per_second),
    };
    let text = serde_json::to_vec_pretty(&Measured { cpu, cores, load: host::load(Path::new("/"))[0], speeds })
        .map_err(|e| Problem::internal(format!("the measured speeds: {e}")))?;
    disk::write_whole(&RealDisk, &path(home), &text)
}

/// `machine.json`: the speeds and what they hold for.
#[derive(Serialize, Deserialize)]
struct Measured {
    cpu: String,
    cores: u32,
    /// Runnable tasks of the minute before.
    #[serde(default)]
    load: f64,
    #[serde(flatten)]
    speeds: Speeds,
}

fn path(home: &Path) -> PathBuf {
    home.join("machine.json")
}

/// Two fused multiply-adds a cycle on registers of eight floats are 32 operations; without AVX2, 8. Wider registers are not
/// counted on: they cost clock, and not every product uses them.
fn assumed(cores: u32, instruction_set: &str) -> Speeds {
    let operations = if instruction_set == "baseline" { 8.0 } else { 32.0 };
    let gemm_gflops = f64::from(cores) * ASSUMED_GHZ * operations * ASSUMED_SHARE;
    Speeds { gemm_gflops, memory_gb_per_second: ASSUMED_GB_PER_SECOND }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_this_machine_are_plausible() {
        let home = tempfile::tempdir().unwrap();
        let facts = facts(&home.path().join("not/made/yet"));
        assert!(!facts.cpu.is_empty() && facts.cores >= 1, "{facts:?}");
        assert!(facts.host_memory_total > 100 << 20, "{facts:?}");
        assert!((1..=facts.host_memory_total).contains(&facts.host_memory_available), "{facts:?}");
        assert!(facts.disk_free > 0 && facts.devices[0].name == "cpu", "{facts:?}");
    }

    #[test]
    fn speeds_measured_here_are_used_and_those_of_another_machine_are_not() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(measured(home.path()), None);
        let speeds = Speeds { gemm_gflops: 123.5, memory_gb_per_second: 9.25 };
        remember(home.path(), &speeds).unwrap();
        assert_eq!(measured(home.path()), Some(speeds));
        assert_eq!(facts(home.path()).gemm_gflops, 123.5);
        let other = std::fs::read_to_string(path(home.path())).unwrap().replace("\"cores\": ", "\"cores\": 9");
        std::fs::write(path(home.path()), other).unwrap();
        assert_eq!(measured(home.path()), None);
        std::fs::write(path(home.path()), "{").unwrap();
        assert_eq!(measured(home.path()), None);
    }

    #[test]
    fn speeds_taken_on_a_busy_machine_are_taken_again_and_never_get_slower() {
        let home = tempfile::tempdir().unwrap();
        assert!(wants_measuring(home.path()));
        remember(home.path(), &Speeds { gemm_gflops: 100.0, memory_gb_per_second: 5.0 }).unwrap();
        remember(home.path(), &Speeds { gemm_gflops: 50.0, memory_gb_per_second: 10.0 }).unwrap();
        assert_eq!(measured(home.path()), Some(Speeds { gemm_gflops: 100.0, memory_gb_per_second: 10.0 }));
        let load = |load: f64| {
            let mut kept = stored(home.path()).unwrap();
            kept.load = load;
            std::fs::write(path(home.path()), serde_json::to_vec(&kept).unwrap()).unwrap();
        };
        load(1e6);
        assert!(wants_measuring(home.path()));
        load(0.0);
        assert!(!wants_measuring(home.path()));
    }

    #[test]
    fn a_sample_is_there_in_time_with_or_without_cards() {
        let home = tempfile::tempdir().unwrap();
        let start = std::time::Instant::now();
        let found = sample(home.path());
        assert!(start.elapsed().as_secs() < 10);
        if found.gpus.is_empty() {
            println!("skipped: no CUDA device");
        }
        assert!(found.host.memory_used < found.host.memory_total && found.host.disk.total >= found.host.disk.free);
    }
}
