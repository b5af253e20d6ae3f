//! `probe`: which libraries and cards there are for training, and on request how fast the cards are.
//!
//! Not here: how libraries are found (`kernels::cuda`), what the driver tells of cards at work (the engine, by NVML).

use super::Lines;
use crate::failure;
use kernels::cuda::{self, DeviceInfo, Library, Presence};
use kernels::matmul::{Orientation, Shape};
use kernels::{AllocError, Compute, Device, measure};
use protocol::facts::{CardFacts, DeviceFacts};
use protocol::machine::{LibraryFacts, Probe};
use protocol::verb::ProbeCards;
use protocol::{Code, Outcome, Problem};
use std::io::Write;

/// Sizes of the square products that a card's speed is measured by: the smallest that takes long enough, so that a fast
/// card is filled and a slow one does not take minutes.
const SIDES: [usize; 5] = [512, 1024, 2048, 4096, 8192];
/// Floats of the buffers that its memory is measured over, in the same way.
const FLOATS: [usize; 4] = [1 << 20, 1 << 22, 1 << 24, 1 << 26];
/// What is long enough: far beyond what ordering the work takes.
const LONG_SECONDS: f64 = 2e-3;
/// Runs of each size after one to warm up, of which the fastest counts.
const RUNS: usize = 3;
/// A card without matrix units for bf16 computes it no faster than f32.
const BF16_SINCE: u32 = 8;

/// Carries out the request. A machine without libraries or cards is an answer, not an error.
pub fn main<W: Write>(request: ProbeCards, lines: &mut Lines<W>) -> Outcome<Probe> {
    let found = cuda::libraries();
    let names = ["driver", "nvrtc", "cublaslt", "nccl"];
    let libraries = names.into_iter().zip(found.all()).map(|(name, library)| facts(name, library)).collect();
    if !found.usable() {
        return Ok(Probe { libraries, ..Probe::default() });
    }
    match cuda::devices() {
        Err(error) => {
            Ok(Probe { libraries, problem: Some(failure::of_device("the driver", &error)), ..Probe::default() })
        }
        Ok(all) => {
            let mut probe = Probe { libraries, ..Probe::default() };
            for (at, info) in all.iter().enumerate() {
                lines.progress("looking at cards", at as u64, all.len() as u64, "cards")?;
                match card(info, request.measure) {
                    Ok(device) => probe.devices.push(device),
                    // The others can be used all the same.
                    Err(problem) => probe.problem = Some(problem),
                }
            }
            Ok(probe)
        }
    }
}

fn facts(name: &str, library: &Library) -> LibraryFacts {
    let (path, version, problem) = match &library.presence {
        Presence::Found { path, version } => (Some(path.display().to_string()), Some(version.clone()), None),
        Presence::Missing { why } => (None, None, Some(missing(library, why))),
    };
    let version = version.filter(|text| !text.is_empty());
    LibraryFacts { name: name.to_owned(), required: library.required, path, version, problem }
}

fn missing(library: &Library, why: &str) -> Problem {
    let kept = if library.required { "jobs run on the CPU" } else { "one card at a time can be trained on" };
    let remedy = match library.package {
        Some(package) => format!(
            "pip install {package}, in the environment you start Anneal from; or install NVIDIA's package of it; or name \
             its folder in ANNEAL_CUDA_LIBRARIES"
        ),
        None => "install NVIDIA's driver: your distribution's package, or nvidia.com/drivers".to_owned(),
    };
    Problem::new(Code::DeviceUnavailable, format!("{} cannot be used", library.name)).why(why).kept(kept).remedy(remedy)
}

fn card(info: &DeviceInfo, measure: bool) -> Outcome<DeviceFacts> {
    let name = format!("cuda:{}", info.index);
    let mut card = CardFacts {
        model: info.name.clone(),
        compute_capability: [info.capability.0, info.capability.1],
        pci: place(&info.pci),
        gemm_gflops: 0.0,
        gemm_gflops_bf16: 0.0,
        memory_gb_per_second: 0.0,
    };
    if measure {
        speeds(info, &name, &mut card)?;
    }
    let memory_free = info.memory_free.unwrap_or(info.memory_total);
    Ok(DeviceFacts { name, memory_total: info.memory_total, memory_free, card: Some(card) })
}

/// "0000:01:00.0" of the driver's eight digits of domain.
fn place(pci: &str) -> String {
    match pci.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 => format!("{}:{rest}", &domain[domain.len() - 4..]),
        _ => pci.to_owned(),
    }
}

fn speeds(info: &DeviceInfo, name: &str, card: &mut CardFacts) -> Outcome<()> {
    let open = |compute| Device::cuda(info.index, compute).map_err(|e| failure::of_device(name, &e));
    let device = open(Compute::F32)?;
    card.gemm_gflops = matrix_speed(&device)?;
    card.memory_gb_per_second = memory_speed(&device)?;
    card.gemm_gflops_bf16 = match info.capability.0 {
        BF16_SINCE.. => matrix_speed(&open(Compute::Bf16)?)?,
        _ => card.gemm_gflops,
    };
    Ok(())
}

fn matrix_speed(device: &Device) -> Outcome<f64> {
    largest(&SIDES, |side| {
        let speed = measure::gemm(device, Orientation::Nt, Shape { m: side, n: side, k: side }, RUNS)?;
        Ok((speed, 2.0 * (side as f64).powi(3) / 1e9 / speed))
    })
}

fn memory_speed(device: &Device) -> Outcome<f64> {
    largest(&FLOATS, |floats| {
        let speed = measure::memory(device, floats, RUNS)?;
        Ok((speed, 12.0 * floats as f64 / 1e9 / speed))
    })
}

/// The speed at the first size that takes long enough, or at the largest that finds memory.
fn largest(sizes: &[usize], measure: impl Fn(usize) -> Result<(f64, f64), AllocError>) -> Outcome<f64> {
    let mut speed = None;
    for size in sizes {
        match (measure(*size), speed) {
            (Ok((reached, seconds)), _) => {
                speed = Some(reached);
                if seconds >= LONG_SECONDS {
                    break;
                }
            }
            (Err(_), Some(_)) => break,
            (Err(error), None) => {
                return Err(Problem::new(Code::OutOfMemory, "the card has no memory to be measured in")
                    .why(error.to_string())
                    .remedy("close other programs on the card"));
            }
        }
    }
    speed.ok_or_else(|| Problem::internal("nothing was measured"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_size_that_takes_long_enough_counts() {
        let speed = largest(&[1, 10, 100], |size| Ok((size as f64, size as f64 * 1e-3))).unwrap();
        assert_eq!(speed, 10.0);
        let full = |size: usize| AllocError::Exhausted { asked: size as u64 };
        let speed = largest(&[1, 10], |size| if size > 1 { Err(full(size)) } else { Ok((1.0, 0.0)) }).unwrap();
        assert_eq!(speed, 1.0);
        assert_eq!(largest(&[1], |size| Err(full(size))).unwrap_err().code, Code::OutOfMemory);
    }

    #[test]
    fn a_place_on_the_bus_reads_as_nvml_tells_it() {
        assert_eq!(
            (place("00000000:01:00.0").as_str(), place("0000:01:00.0").as_str()),
            ("0000:01:00.0", "0000:01:00.0")
        );
    }
}
