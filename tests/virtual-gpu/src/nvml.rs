//! libnvidia-ml: what the script says of a device, and what the driver double knows of it.

#![allow(unsafe_op_in_unsafe_fn, non_snake_case, reason = "C entry points: callers vouch for pointers as NVML demands")]

use crate::driver::{pci_of, put_text, uuid_of};
use crate::script::NvmlSpec;
use crate::state::{Device, Registry, gpu, lock};
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// An `nvmlReturn_t` where it fails.
type Nvml<T> = Result<T, u32>;

const UNINITIALIZED: u32 = 1;
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NOT_FOUND: u32 = 6;
const INSUFFICIENT_SIZE: u32 = 7;
const TIMEOUT: u32 = 10;
const GPU_IS_LOST: u32 = 15;

/// Handle of the first device; the others follow in steps of 16.
const FIRST_DEVICE: usize = 0x4000_0000;
/// NVLinks that a device may have.
const NVLINKS_MAX: c_uint = 18;
/// `nvmlEventTypeXidCriticalError`.
const EVENT_XID: c_ulonglong = 8;
/// How long a utilisation is an average over.
const SAMPLE: Duration = Duration::from_millis(100);

static USERS: AtomicUsize = AtomicUsize::new(0);

fn status(body: impl FnOnce() -> Nvml<()>) -> u32 {
    body().err().unwrap_or(0)
}

unsafe fn put<T>(to: *mut T, value: T) -> Nvml<()> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    to.write(value);
    Ok(())
}

/// Every call begins here: it may hang, and it needs an initialised library.
fn enter(name: &str) -> Nvml<()> {
    gpu().faults.wait_for_nvml(name);
    if USERS.load(Ordering::Acquire) == 0 { Err(UNINITIALIZED) } else { Ok(()) }
}

fn handle_of(device: &Device) -> usize {
    FIRST_DEVICE + device.id * 16
}

fn device_of(handle: usize) -> Nvml<&'static Device> {
    let offset = handle.checked_sub(FIRST_DEVICE).filter(|offset| offset % 16 == 0).ok_or(INVALID_ARGUMENT)?;
    gpu().device(offset / 16).map_err(|_| INVALID_ARGUMENT)
}

/// The device of a call that it supports and is there to answer.
fn device(name: &str, handle: usize) -> Nvml<&'static Device> {
    enter(name)?;
    let device = device_of(handle)?;
    if device.is_lost() {
        return Err(GPU_IS_LOST);
    }
    let lacks = device.read(|s| s.nvml.unsupported.iter().any(|lacking| lacking == name));
    if lacks { Err(NOT_SUPPORTED) } else { Ok(device) }
}

/// Answers one thing of the script.
unsafe fn tell<T>(name: &str, handle: usize, out: *mut T, part: impl FnOnce(&NvmlSpec) -> T) -> u32 {
    status(|| put(out, device(name, handle)?.read(|s| part(&s.nvml))))
}

unsafe fn tell_text(to: *mut c_char, capacity: c_uint, text: &str) -> Nvml<()> {
    if text.len() >= capacity as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    put_text(to, capacity as usize, text).map_err(|_| INVALID_ARGUMENT)
}

// ---- the library ----

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> u32 {
    gpu().faults.wait_for_nvml("nvmlInit_v2");
    USERS.fetch_add(1, Ordering::AcqRel);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> u32 {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> u32 {
    let one_less = |users: usize| users.checked_sub(1);
    match USERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less) {
        Ok(_) => 0,
        Err(_) => UNINITIALIZED,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(error: u32) -> *const c_char {
    let text = match error {
        0 => c"Success",
        UNINITIALIZED => c"Uninitialized",
        INVALID_ARGUMENT => c"Invalid Argument",
        NOT_SUPPORTED => c"Not Supported",
        NOT_FOUND => c"Not Found",
        INSUFFICIENT_SIZE => c"Insufficient Size",
        TIMEOUT => c"Timeout",
        GPU_IS_LOST => c"GPU is lost",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, capacity: c_uint) -> u32 {
    status(|| {
        enter("nvmlSystemGetDriverVersion")?;
        tell_text(text, capacity, "570.86.10")
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetNVMLVersion(text: *mut c_char, capacity: c_uint) -> u32 {
    status(|| {
        enter("nvmlSystemGetNVMLVersion")?;
        tell_text(text, capacity, "12.570.86.10")
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) -> u32 {
    status(|| {
        enter("nvmlSystemGetCudaDriverVersion")?;
        put(version, gpu().settings.driver_version.load(Ordering::Relaxed) as c_int)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> u32 {
    nvmlSystemGetCudaDriverVersion(version)
}

// ---- identity ----

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> u32 {
    status(|| {
        enter("nvmlDeviceGetCount_v2")?;
        put(count, gpu().devices.len() as c_uint)
    })
}

/// A lost device is found: only what is asked of it fails.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut usize) -> u32 {
    status(|| {
        enter("nvmlDeviceGetHandleByIndex_v2")?;
        put(out, handle_of(gpu().device(index as usize).map_err(|_| INVALID_ARGUMENT)?))
    })
}

unsafe fn find(name: &str, out: *mut usize, wanted: *const c_char, is: impl Fn(&Device, &str) -> bool) -> Nvml<()> {
    enter(name)?;
    if wanted.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    let wanted = CStr::from_ptr(wanted).to_string_lossy();
    put(out, handle_of(gpu().devices.iter().find(|d| is(d, &wanted)).ok_or(NOT_FOUND)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut usize) -> u32 {
    status(|| find("nvmlDeviceGetHandleByUUID", out, uuid, |d, wanted| uuid_text(d) == wanted))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(place: *const c_char, out: *mut usize) -> u32 {
    let is =
        |d: &Device, wanted: &str| PciInfo::of(d).is_some_and(|a| PciInfo::parse(wanted).is_some_and(|b| a.is_at(&b)));
    status(|| find("nvmlDeviceGetHandleByPciBusId_v2", out, place, is))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(handle: usize, text: *mut c_char, capacity: c_uint) -> u32 {
    status(|| tell_text(text, capacity, &device("nvmlDeviceGetName", handle)?.spec().name))
}

fn uuid_text(device: &Device) -> String {
    let hex: String = uuid_of(device.id).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(handle: usize, text: *mut c_char, capacity: c_uint) -> u32 {
    status(|| tell_text(text, capacity, &uuid_text(device("nvmlDeviceGetUUID", handle)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetIndex(handle: usize, out: *mut c_uint) -> u32 {
    status(|| put(out, device("nvmlDeviceGetIndex", handle)?.id as c_uint))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMinorNumber(handle: usize, out: *mut c_uint) -> u32 {
    status(|| put(out, device("nvmlDeviceGetMinorNumber", handle)?.id as c_uint))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(handle: usize, major: *mut c_int, minor: *mut c_int) -> u32 {
    status(|| {
        let [high, low] = device("nvmlDeviceGetCudaComputeCapability", handle)?.read(|s| s.compute_capability);
        put(major, high as c_int)?;
        put(minor, low as c_int)
    })
}

/// `nvmlPciInfo_t`.
#[repr(C)]
struct PciInfo {
    short: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    long: [c_char; 32],
}

/// Identity of a PCI device with NVIDIA as its vendor.
const PCI_DEVICE: c_uint = 0x2330_10DE;

impl PciInfo {
    fn parse(place: &str) -> Option<PciInfo> {
        let hex = |text: &str| c_uint::from_str_radix(text, 16).ok();
        let (rest, function) = place.rsplit_once('.')?;
        let mut parts = rest.split(':');
        let (domain, bus, device) = (hex(parts.next()?)?, hex(parts.next()?)?, hex(parts.next()?)?);
        let (mut short, mut long) = ([0; 16], [0; 32]);
        let write =
            |to: &mut [c_char], text: String| to.iter_mut().zip(text.bytes()).for_each(|(to, b)| *to = b as c_char);
        write(&mut short, format!("{:04X}:{bus:02X}:{device:02X}.{function}", domain & 0xFFFF));
        write(&mut long, format!("{domain:08X}:{bus:02X}:{device:02X}.{function}"));
        Some(PciInfo { short, domain, bus, device, device_id: PCI_DEVICE, subsystem_id: PCI_DEVICE, long })
    }

    fn of(device: &Device) -> Option<PciInfo> {
        PciInfo::parse(&pci_of(device))
    }

    fn is_at(&self, other: &PciInfo) -> bool {
        (self.domain, self.bus, self.device) == (other.domain, other.bus, other.device)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(handle: usize, out: *mut PciInfo) -> u32 {
    status(|| put(out, PciInfo::of(device("nvmlDeviceGetPciInfo_v3", handle)?).ok_or(INVALID_ARGUMENT)?))
}

// ---- load ----

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// Busy time and clock at the last sample of a device, and what was answered.
#[derive(Clone, Copy)]
struct Sample {
    busy: Duration,
    at: Instant,
    answer: Utilization,
}

fn utilization(device: &Device) -> Utilization {
    static SAMPLES: Mutex<Vec<Option<Sample>>> = Mutex::new(Vec::new());
    let mut samples = lock(&SAMPLES);
    samples.resize(gpu().devices.len(), None);
    let zero = Sample { busy: Duration::ZERO, at: gpu().started, answer: Utilization::default() };
    let last = samples[device.id].get_or_insert(zero);
    let (elapsed, busy) = (last.at.elapsed(), device.busy());
    if elapsed >= SAMPLE {
        let percent = |part: u64, whole: u64| (part * 100 / whole.max(1)).min(100) as c_uint;
        let total = device.read(|s| s.memory_bytes);
        last.answer = Utilization {
            gpu: percent(busy.saturating_sub(last.busy).as_nanos() as u64, elapsed.as_nanos() as u64),
            memory: percent(device.used_by_all(), total),
        };
        (last.busy, last.at) = (busy, Instant::now());
    }
    last.answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(handle: usize, out: *mut Utilization) -> u32 {
    status(|| put(out, utilization(device("nvmlDeviceGetUtilizationRates", handle)?)))
}

/// `nvmlMemory_t`.
#[repr(C)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

fn memory(device: &Device) -> (u64, u64) {
    (device.read(|s| s.memory_bytes), device.used_by_all())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(handle: usize, out: *mut Memory) -> u32 {
    status(|| {
        let (total, used) = memory(device("nvmlDeviceGetMemoryInfo", handle)?);
        put(out, Memory { total, free: total.saturating_sub(used), used })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: usize, out: *mut MemoryV2) -> u32 {
    status(|| {
        let (total, used) = memory(device("nvmlDeviceGetMemoryInfo_v2", handle)?);
        if out.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        let version = (*out).version;
        put(out, MemoryV2 { version, total, reserved: 0, free: total.saturating_sub(used), used })
    })
}

/// `nvmlProcessInfo_t`.
#[repr(C)]
struct ProcessInfo {
    process: c_uint,
    used_bytes: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Processes that have a context or memory on a device, with the bytes of each.
fn processes(device: &Device) -> Vec<(u32, u64)> {
    let mut found = device.others();
    let used = device.used.load(Ordering::Acquire);
    if used > 0 || device.primary_references.load(Ordering::Acquire) > 0 {
        found.push((std::process::id(), used));
    }
    found
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: usize,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> u32 {
    status(|| {
        let found = processes(device("nvmlDeviceGetComputeRunningProcesses_v3", handle)?);
        if count.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        let room = *count as usize;
        *count = found.len() as c_uint;
        if room < found.len() || (out.is_null() && !found.is_empty()) {
            return Err(INSUFFICIENT_SIZE);
        }
        for (number, (process, used_bytes)) in found.into_iter().enumerate() {
            let (gpu_instance, compute_instance) = (c_uint::MAX, c_uint::MAX);
            out.add(number).write(ProcessInfo { process, used_bytes, gpu_instance, compute_instance });
        }
        Ok(())
    })
}

// ---- heat, power, clocks ----

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(handle: usize, sensor: c_uint, out: *mut c_uint) -> u32 {
    if sensor != 0 {
        return INVALID_ARGUMENT;
    }
    tell("nvmlDeviceGetTemperature", handle, out, |s| s.temperature)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperatureThreshold(handle: usize, threshold: c_uint, out: *mut c_uint) -> u32 {
    let degrees = match threshold {
        0 => 95, // shutdown
        1 => 90, // slowdown
        _ => return NOT_SUPPORTED,
    };
    tell("nvmlDeviceGetTemperatureThreshold", handle, out, |_| degrees)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerUsage(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetPowerUsage", handle, out, |s| s.power_mw)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetEnforcedPowerLimit", handle, out, |s| s.power_limit_mw)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerManagementLimit(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetPowerManagementLimit", handle, out, |s| s.power_limit_mw)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerManagementDefaultLimit(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetPowerManagementDefaultLimit", handle, out, |s| s.power_limit_mw)
}

/// Millijoules since this process began, at the power of now.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEnergyConsumption(handle: usize, out: *mut c_ulonglong) -> u32 {
    let seconds = gpu().started.elapsed().as_secs_f64();
    tell("nvmlDeviceGetTotalEnergyConsumption", handle, out, |s| (f64::from(s.power_mw) * seconds) as c_ulonglong)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNumFans(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetNumFans", handle, out, |_| 1)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFanSpeed(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetFanSpeed", handle, out, |s| s.fan_percent)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFanSpeed_v2(handle: usize, fan: c_uint, out: *mut c_uint) -> u32 {
    if fan != 0 {
        return INVALID_ARGUMENT;
    }
    tell("nvmlDeviceGetFanSpeed_v2", handle, out, |s| s.fan_percent)
}

/// Memory is clock 2; graphics, multiprocessors and video share one.
fn clock(spec: &NvmlSpec, clock: c_uint) -> c_uint {
    if clock == 2 { spec.memory_clock_mhz } else { spec.clock_mhz }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetClockInfo(handle: usize, which: c_uint, out: *mut c_uint) -> u32 {
    if which > 3 {
        return INVALID_ARGUMENT;
    }
    tell("nvmlDeviceGetClockInfo", handle, out, |s| clock(s, which))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(handle: usize, which: c_uint, out: *mut c_uint) -> u32 {
    if which > 3 {
        return INVALID_ARGUMENT;
    }
    tell("nvmlDeviceGetMaxClockInfo", handle, out, |s| clock(s, which))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPerformanceState(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetPerformanceState", handle, out, |_| 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPersistenceMode(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetPersistenceMode", handle, out, |_| 1)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeMode(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetComputeMode", handle, out, |_| 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(handle: usize, out: *mut c_ulonglong) -> u32 {
    tell("nvmlDeviceGetCurrentClocksThrottleReasons", handle, out, |s| s.throttle_reasons)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrentClocksEventReasons(handle: usize, out: *mut c_ulonglong) -> u32 {
    tell("nvmlDeviceGetCurrentClocksEventReasons", handle, out, |s| s.throttle_reasons)
}

/// All reasons there are.
const THROTTLE_REASONS: c_ulonglong = 0x1FF;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedClocksThrottleReasons(handle: usize, out: *mut c_ulonglong) -> u32 {
    tell("nvmlDeviceGetSupportedClocksThrottleReasons", handle, out, |_| THROTTLE_REASONS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedClocksEventReasons(handle: usize, out: *mut c_ulonglong) -> u32 {
    tell("nvmlDeviceGetSupportedClocksEventReasons", handle, out, |_| THROTTLE_REASONS)
}

// ---- memory errors ----

fn errors(spec: &NvmlSpec, kind: c_uint) -> c_ulonglong {
    if kind == 0 { spec.ecc_corrected } else { spec.ecc_uncorrected }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    handle: usize,
    kind: c_uint,
    counter: c_uint,
    out: *mut c_ulonglong,
) -> u32 {
    if kind > 1 || counter > 1 {
        return INVALID_ARGUMENT;
    }
    tell("nvmlDeviceGetTotalEccErrors", handle, out, |s| errors(s, kind))
}

/// All errors are in device memory, location 2.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryErrorCounter(
    handle: usize,
    kind: c_uint,
    counter: c_uint,
    location: c_uint,
    out: *mut c_ulonglong,
) -> u32 {
    if kind > 1 || counter > 1 {
        return INVALID_ARGUMENT;
    }
    let here = location == 2;
    tell("nvmlDeviceGetMemoryErrorCounter", handle, out, |s| if here { errors(s, kind) } else { 0 })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEccMode(handle: usize, now: *mut c_uint, pending: *mut c_uint) -> u32 {
    status(|| {
        device("nvmlDeviceGetEccMode", handle)?;
        put(now, 1)?;
        put(pending, 1)
    })
}

// ---- links ----

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPcieThroughput(handle: usize, counter: c_uint, out: *mut c_uint) -> u32 {
    let part = |s: &NvmlSpec| if counter == 0 { s.pcie_sent_kbs } else { s.pcie_received_kbs };
    if counter > 1 { INVALID_ARGUMENT } else { tell("nvmlDeviceGetPcieThroughput", handle, out, part) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetCurrPcieLinkGeneration", handle, out, |s| s.pcie_generation)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetMaxPcieLinkGeneration", handle, out, |s| s.pcie_generation)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetCurrPcieLinkWidth", handle, out, |s| s.pcie_width)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(handle: usize, out: *mut c_uint) -> u32 {
    tell("nvmlDeviceGetMaxPcieLinkWidth", handle, out, |s| s.pcie_width)
}

/// The device of a call about a link, and whether that link is up.
fn link(name: &str, handle: usize, link: c_uint) -> Nvml<(&'static Device, bool)> {
    let device = device(name, handle)?;
    let links = device.read(|s| s.nvml.nvlinks);
    if link >= NVLINKS_MAX {
        return Err(INVALID_ARGUMENT);
    }
    if links == 0 { Err(NOT_SUPPORTED) } else { Ok((device, link < links)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkState(handle: usize, number: c_uint, out: *mut c_uint) -> u32 {
    status(|| put(out, c_uint::from(link("nvmlDeviceGetNvLinkState", handle, number)?.1)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkVersion(handle: usize, number: c_uint, out: *mut c_uint) -> u32 {
    status(|| {
        link("nvmlDeviceGetNvLinkVersion", handle, number)?;
        put(out, 4)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkCapability(
    handle: usize,
    number: c_uint,
    capability: c_uint,
    out: *mut c_uint,
) -> u32 {
    status(|| {
        let (_, up) = link("nvmlDeviceGetNvLinkCapability", handle, number)?;
        // Peers and atomics work over a link that is up; there is no access to system memory and no bridge.
        put(out, c_uint::from(up && matches!(capability, 0 | 2 | 5)))
    })
}

/// The other end: links go to the following devices in turn.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(handle: usize, number: c_uint, out: *mut PciInfo) -> u32 {
    status(|| {
        let (device, up) = link("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, number)?;
        let others = gpu().devices.len() - 1;
        if !up || others == 0 {
            return Err(NOT_SUPPORTED);
        }
        let other = (device.id + 1 + number as usize % others) % gpu().devices.len();
        put(out, PciInfo::of(&gpu().devices[other]).ok_or(INVALID_ARGUMENT)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTopologyCommonAncestor(a: usize, b: usize, out: *mut c_uint) -> u32 {
    status(|| {
        let name = "nvmlDeviceGetTopologyCommonAncestor";
        let (a, b) = (device(name, a)?, device(name, b)?);
        put(out, if a.id == b.id { 0 } else { a.read(|s| s.nvml.topology_level) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetP2PStatus(a: usize, b: usize, _capability: c_uint, out: *mut c_uint) -> u32 {
    status(|| {
        let name = "nvmlDeviceGetP2PStatus";
        device(name, a)?;
        device(name, b)?;
        put(out, if gpu().settings.peer_access.load(Ordering::Relaxed) { 0 } else { 5 })
    })
}

// ---- events ----

/// `nvmlEventData_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct EventData {
    device: usize,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[derive(Default)]
struct Watch {
    /// Devices with the kinds that are watched on each.
    watched: Vec<(usize, c_ulonglong)>,
    waiting: VecDeque<EventData>,
}

#[derive(Default)]
struct EventSet {
    watch: Mutex<Watch>,
    arrived: Condvar,
}

/// Sets by handle.
fn sets() -> &'static Registry<EventSet> {
    static SETS: OnceLock<Registry<EventSet>> = OnceLock::new();
    SETS.get_or_init(|| Registry::new(0x2000_0000))
}

/// Tells the event sets that watch a device of an Xid.
pub(crate) fn report_xid(device: &Device, number: u64) {
    let device = handle_of(device);
    for set in sets().all() {
        let mut watch = lock(&set.watch);
        if watch.watched.iter().any(|(watched, kinds)| *watched == device && kinds & EVENT_XID != 0) {
            let (gpu_instance, compute_instance) = (c_uint::MAX, c_uint::MAX);
            let data = EventData { device, kind: EVENT_XID, data: number, gpu_instance, compute_instance };
            watch.waiting.push_back(data);
            set.arrived.notify_all();
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(out: *mut usize) -> u32 {
    status(|| {
        enter("nvmlEventSetCreate")?;
        put(out, sets().insert(Arc::default()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: usize) -> u32 {
    status(|| sets().remove(set).map(|_| ()).map_err(|_| INVALID_ARGUMENT))
}

/// Xid, single and double bit errors, clocks: only Xids ever come.
const EVENTS: c_ulonglong = EVENT_XID | 1 | 2 | 16;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(handle: usize, out: *mut c_ulonglong) -> u32 {
    tell("nvmlDeviceGetSupportedEventTypes", handle, out, |_| EVENTS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(handle: usize, kinds: c_ulonglong, set: usize) -> u32 {
    status(|| {
        device("nvmlDeviceRegisterEvents", handle)?;
        if kinds & !EVENTS != 0 {
            return Err(NOT_SUPPORTED);
        }
        let set = sets().get(set).map_err(|_| INVALID_ARGUMENT)?;
        lock(&set.watch).watched.push((handle, kinds));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(set: usize, out: *mut EventData, timeout_ms: c_uint) -> u32 {
    status(|| {
        enter("nvmlEventSetWait_v2")?;
        let set = sets().get(set).map_err(|_| INVALID_ARGUMENT)?;
        let until = Instant::now() + Duration::from_millis(u64::from(timeout_ms));
        let mut watch = lock(&set.watch);
        loop {
            if let Some(event) = watch.waiting.pop_front() {
                return put(out, event);
            }
            let left = until.checked_duration_since(Instant::now()).ok_or(TIMEOUT)?;
            watch = set.arrived.wait_timeout(watch, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    })
}
