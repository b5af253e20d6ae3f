//! Samples of graphics cards through NVML, where the driver's library loads. NVML may never return (a lost card, a driver
//! in trouble), so one thread of its own speaks with it, and the others wait for a bounded time.

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use protocol::machine::{GpuClocks, GpuLinks, GpuProcess, GpuSample};
use protocol::{Code, Outcome, Problem};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a sample may take: eight cards answer in about 50 ms, the first one after a rest in a second.
const PATIENCE: Duration = Duration::from_secs(2);
/// NVLinks a card can have (`NVML_NVLINK_MAX_LINKS`).
const LINKS: u32 = 18;
/// Cards listed: more than any machine holds.
const CARDS: u32 = 64;

/// A sample of every card; empty where there is no driver. Errors: `DeviceUnavailable`.
pub fn sample() -> Outcome<Vec<GpuSample>> {
    static ASKER: Mutex<Option<Asker>> = Mutex::new(None);
    let mut asker = ASKER.lock().unwrap_or_else(PoisonError::into_inner);
    match asker.get_or_insert_with(|| Asker::start(Driver::load)).ask(PATIENCE) {
        Ok(cards) => cards,
        Err(Silence::Waiting) => Err(silent("the driver has not answered for two seconds")),
        Err(Silence::Gone) => {
            // Its thread ended: the next sample starts another.
            *asker = None;
            Err(silent("asking the driver failed"))
        }
    }
}

fn silent(why: &str) -> Problem {
    Problem::new(Code::DeviceUnavailable, "the graphics cards cannot be read")
        .why(why)
        .remedy("see what nvidia-smi and dmesg say; a restart of the machine may be needed")
}

/// What an answer looks like.
type Cards = Outcome<Vec<GpuSample>>;

/// The thread that speaks with the driver. At most one question is open: a stuck driver costs one thread, once.
struct Asker {
    questions: SyncSender<()>,
    answers: Receiver<Cards>,
    open: bool,
}

enum Silence {
    Waiting,
    Gone,
}

impl Asker {
    fn start<D: FnMut() -> Cards>(driver: impl FnOnce() -> D + Send + 'static) -> Asker {
        // One place each: there is never more than one question or answer under way.
        let (questions, asked) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        let run = move || {
            let mut driver = driver();
            while asked.recv().is_ok() {
                if answer.send(driver()).is_err() {
                    break;
                }
            }
        };
        // Where no thread can be had, both ends are dropped and the next question finds nobody.
        let _ = thread::Builder::new().name("anneal-nvml".into()).spawn(run);
        Asker { questions, answers, open: false }
    }

    /// An answer to a question that was left open is old, but better than none.
    fn ask(&mut self, patience: Duration) -> Result<Cards, Silence> {
        if !self.open {
            self.questions.send(()).map_err(|_| Silence::Gone)?;
            self.open = true;
        }
        let answer = self.answers.recv_timeout(patience).map_err(|e| match e {
            std::sync::mpsc::RecvTimeoutError::Timeout => Silence::Waiting,
            std::sync::mpsc::RecvTimeoutError::Disconnected => Silence::Gone,
        })?;
        self.open = false;
        Ok(answer)
    }
}

/// The driver's library, opened once.
struct Driver;

impl Driver {
    fn load() -> impl FnMut() -> Cards {
        let opened = Nvml::init();
        move || match &opened {
            Ok(nvml) => all(nvml),
            Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded) => {
                Ok(Vec::new())
            }
            Err(error) => Err(silent(&error.to_string())),
        }
    }
}

/// A card that does not answer at all is listed with nothing known.
fn all(nvml: &Nvml) -> Cards {
    let count = nvml.device_count().map_err(|e| silent(&e.to_string()))?;
    Ok((0..count.min(CARDS)).map(|i| nvml.device_by_index(i).map(|card| one(&card)).unwrap_or_default()).collect())
}

fn one(card: &Device<'_>) -> GpuSample {
    let memory = card.memory_info().ok();
    let watts = |milliwatts: Result<u32, NvmlError>| milliwatts.ok().map(|mw| f64::from(mw) / 1000.0);
    GpuSample {
        name: card.name().ok(),
        memory_total: memory.as_ref().map(|m| m.total),
        memory_used: memory.as_ref().map(|m| m.used),
        utilization: card.utilization_rates().ok().map(|u| u.gpu),
        temperature: card.temperature(TemperatureSensor::Gpu).ok(),
        power: watts(card.power_usage()),
        power_limit: watts(card.enforced_power_limit()),
        clocks: GpuClocks { sm: card.clock_info(Clock::SM).ok(), memory: card.clock_info(Clock::Memory).ok() },
        processes: processes(card),
        links: links(card),
    }
}

/// A process that computes and draws is listed once.
fn processes(card: &Device<'_>) -> Option<Vec<GpuProcess>> {
    let compute = card.running_compute_processes().ok()?;
    let graphics = card.running_graphics_processes().unwrap_or_default();
    let memory = |used: &UsedGpuMemory| match used {
        UsedGpuMemory::Used(bytes) => Some(*bytes),
        UsedGpuMemory::Unavailable => None,
    };
    let found: BTreeMap<u32, Option<u64>> =
        graphics.iter().chain(&compute).map(|p| (p.pid, memory(&p.used_gpu_memory))).collect();
    Some(found.into_iter().map(|(pid, memory)| GpuProcess { pid, memory }).collect())
}

fn links(card: &Device<'_>) -> GpuLinks {
    let states: Vec<bool> = (0..LINKS).map_while(|link| card.link_wrapper_for(link).is_active().ok()).collect();
    GpuLinks {
        pcie_generation: card.current_pcie_link_gen().ok(),
        pcie_width: card.current_pcie_link_width().ok(),
        nvlinks: (!states.is_empty()).then(|| states.iter().filter(|up| **up).count() as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_never_returns_costs_one_thread_and_no_waiting_beyond_the_bound() {
        let (release, held) = sync_channel::<()>(0);
        let mut asker = Asker::start(move || {
            move || {
                let _ = held.recv();
                Ok(vec![GpuSample::default()])
            }
        });
        let short = Duration::from_millis(20);
        for _ in 0..3 {
            assert!(matches!(asker.ask(short), Err(Silence::Waiting)));
        }
        release.send(()).unwrap();
        assert_eq!(asker.ask(Duration::from_secs(10)).ok().unwrap().unwrap().len(), 1);
        drop(release);
        assert_eq!(asker.ask(Duration::from_secs(10)).ok().unwrap().unwrap().len(), 1);
    }

    #[test]
    fn a_driver_that_ends_its_thread_is_said_and_not_waited_for() {
        let mut asker = Asker::start(|| || -> Cards { panic!("the driver's thread ends") });
        assert!(matches!(asker.ask(Duration::from_secs(10)), Err(Silence::Gone)));
    }
}
