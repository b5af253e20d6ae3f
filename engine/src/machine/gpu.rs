//! Samples of graphics cards through NVML, where the driver's library loads. NVML may never return (a lost card, a driver
//! in trouble), so one thread of its own speaks with it, and the others wait for a bounded time.

use super::xid::Xids;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use protocol::machine::{GpuClocks, GpuEcc, GpuLinks, GpuProcess, GpuSample, Throttle};
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

/// What the driver tells.
#[derive(Debug, Default, PartialEq)]
pub struct Cards {
    /// Its version; `None` where there is no driver.
    pub driver: Option<String>,
    /// A sample of every card.
    pub cards: Vec<GpuSample>,
}

/// A sample of every card; empty where there is no driver. Errors: `DeviceUnavailable`.
pub fn sample() -> Outcome<Cards> {
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

/// The thread that speaks with the driver. At most one question is open: a stuck driver costs one thread, once.
struct Asker {
    questions: SyncSender<()>,
    answers: Receiver<Outcome<Cards>>,
    open: bool,
}

enum Silence {
    Waiting,
    Gone,
}

impl Asker {
    fn start<D: FnMut() -> Outcome<Cards>>(driver: impl FnOnce() -> D + Send + 'static) -> Asker {
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
    fn ask(&mut self, patience: Duration) -> Result<Outcome<Cards>, Silence> {
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
    fn load() -> impl FnMut() -> Outcome<Cards> {
        // Opened once a process and never closed: what listens for its events lives as long.
        let opened = Nvml::init().map(|nvml| &*Box::leak(Box::new(nvml)));
        let mut xids = opened.as_ref().map(|nvml| Xids::watch(nvml)).unwrap_or_default();
        move || match &opened {
            Ok(nvml) => all(nvml, &mut xids),
            Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded) => {
                Ok(Cards::default())
            }
            Err(error) => Err(silent(&error.to_string())),
        }
    }
}

/// A card that does not answer at all is listed with nothing known but what the driver said of it before.
fn all(nvml: &Nvml, xids: &mut Xids) -> Outcome<Cards> {
    let count = nvml.device_count().map_err(|e| silent(&e.to_string()))?;
    xids.hear();
    let card = |i| {
        let sample = nvml.device_by_index(i).map(|card| one(&card)).unwrap_or_default();
        GpuSample { xid: xids.of(i), ..sample }
    };
    let driver = Some(nvml.sys_driver_version().unwrap_or_default());
    Ok(Cards { driver, cards: (0..count.min(CARDS)).map(card).collect() })
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
        pci: card.pci_info().ok().map(|pci| place(&pci.bus_id)),
        fan: card.fan_speed(0).ok(),
        throttle: card.current_throttle_reasons().ok().map(throttle),
        ecc: ecc(card),
        xid: None,
    }
}

/// "0000:01:00.0" of what NVML writes with eight digits of domain.
fn place(bus_id: &str) -> String {
    let id = bus_id.to_ascii_lowercase();
    match id.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 => format!("{}:{rest}", &domain[domain.len() - 4..]),
        _ => id,
    }
}

/// Idle clocks are no throttling: nobody waits for them.
fn throttle(reasons: ThrottleReasons) -> Vec<Throttle> {
    let known = [
        (ThrottleReasons::SW_POWER_CAP, Throttle::PowerCap),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::Thermal),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
        (ThrottleReasons::HW_SLOWDOWN, Throttle::Hardware),
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, Throttle::Setting),
        (ThrottleReasons::SYNC_BOOST, Throttle::SyncBoost),
    ];
    known.into_iter().filter(|(bits, _)| reasons.intersects(*bits)).map(|(_, name)| name).collect()
}

fn ecc(card: &Device<'_>) -> Option<GpuEcc> {
    let errors = |kind| card.total_ecc_errors(kind, EccCounter::Volatile).ok();
    Some(GpuEcc { corrected: errors(MemoryError::Corrected)?, uncorrected: errors(MemoryError::Uncorrected)? })
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
        pcie_received: traffic(card, PcieUtilCounter::Receive),
        pcie_sent: traffic(card, PcieUtilCounter::Send),
        nvlinks: (!states.is_empty()).then(|| states.iter().filter(|up| **up).count() as u32),
    }
}

/// Bytes a second; NVML counts KB over 20 ms.
fn traffic(card: &Device<'_>, way: PcieUtilCounter) -> Option<u64> {
    card.pcie_throughput(way).ok().map(|kb| u64::from(kb) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use virtual_gpu::{Fault, Script};

    #[test]
    fn a_place_on_the_bus_reads_as_the_driver_writes_it() {
        assert_eq!(place("00000000:01:00.0"), "0000:01:00.0");
        assert_eq!(place("0000:C1:00.0"), "0000:c1:00.0");
    }

    #[test]
    fn idle_clocks_are_no_throttling() {
        assert_eq!(throttle(ThrottleReasons::GPU_IDLE), []);
        let hot = ThrottleReasons::HW_THERMAL_SLOWDOWN | ThrottleReasons::HW_SLOWDOWN;
        assert_eq!(throttle(hot), [Throttle::Thermal, Throttle::Hardware]);
    }

    #[test]
    fn a_driver_that_never_returns_costs_one_thread_and_no_waiting_beyond_the_bound() {
        let (release, held) = sync_channel::<()>(0);
        let mut asker = Asker::start(move || {
            move || {
                let _ = held.recv();
                Ok(Cards { driver: None, cards: vec![GpuSample::default()] })
            }
        });
        let short = Duration::from_millis(20);
        for _ in 0..3 {
            assert!(matches!(asker.ask(short), Err(Silence::Waiting)));
        }
        release.send(()).unwrap();
        assert_eq!(asker.ask(Duration::from_secs(10)).ok().unwrap().unwrap().cards.len(), 1);
        drop(release);
        assert_eq!(asker.ask(Duration::from_secs(10)).ok().unwrap().unwrap().cards.len(), 1);
    }

    #[test]
    fn a_driver_that_ends_its_thread_is_said_and_not_waited_for() {
        let mut asker = Asker::start(|| || -> Outcome<Cards> { panic!("the driver's thread ends") });
        assert!(matches!(asker.ask(Duration::from_secs(10)), Err(Silence::Gone)));
    }

    /// What a virtual driver says, through the same library calls as a real one's.
    #[test]
    fn errors_lost_cards_and_fields_that_are_not_there_are_told_apart() {
        let mut script = Script::with_devices(2, 1 << 30);
        script.devices[1].nvml.unsupported =
            vec!["nvmlDeviceGetTotalEccErrors".into(), "nvmlDeviceGetFanSpeed_v2".into()];
        if let Err(why) = virtual_gpu::install(&script) {
            return println!("skipped: no CUDA device ({why})");
        }
        let (mut asker, control, long) = (Asker::start(Driver::load), virtual_gpu::control(), Duration::from_secs(20));
        let mut cards = || asker.ask(long).ok().unwrap().unwrap().cards;
        let first = cards();
        assert_eq!((first[0].xid, first[0].ecc), (None, Some(GpuEcc { corrected: 0, uncorrected: 0 })));
        assert_eq!((first[1].ecc, first[1].fan, first[1].temperature.is_some()), (None, None, true));
        assert!(first[0].pci.is_some() && first[0].pci != first[1].pci, "{first:?}");
        control.report_xid(1, 79);
        let told = cards();
        assert_eq!((told[0].xid, told[1].xid.map(|xid| xid.code)), (None, Some(79)));
        control.lose(0, 46);
        let lost = cards();
        assert_eq!((lost[0].name.as_deref(), lost[0].utilization, lost[0].memory_used), (None, None, None));
        assert!(lost[1].name.is_some() && lost[1].xid.is_some());
        control.revive(0);
        control.arm(Fault::NvmlHang { call: "nvmlDeviceGetTemperature".into() });
        assert!(matches!(asker.ask(Duration::from_millis(100)), Err(Silence::Waiting)));
        control.clear_faults();
        assert_eq!(asker.ask(long).ok().unwrap().unwrap().cards.len(), 2);
    }
}
