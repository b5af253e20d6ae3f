//! NVML through nvml-wrapper: identity, load, links, errors, hangs, events, losses.

use crate::{Bench, DEVICES, MEMORY, machine};
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor, TopologyLevel,
};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use virtual_gpu::{Fault, NvmlSpec};

#[test]
fn identities_match_the_driver() {
    let Some((_turn, _control)) = machine() else { return };
    let nvml = Nvml::init().unwrap();
    assert_eq!(nvml.device_count().unwrap(), DEVICES as u32);
    assert_eq!(nvml.sys_driver_version().unwrap(), "570.86.10");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 12_080);
    let device = nvml.device_by_index(2).unwrap();
    assert_eq!((device.name().unwrap().as_str(), device.index().unwrap()), ("Virtual GPU", 2));
    let uuid = Bench::new(2).context.uuid().unwrap().bytes;
    let hex: String = uuid.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
    assert_eq!(device.uuid().unwrap().replace('-', ""), format!("GPU{hex}"));
    let pci = device.pci_info().unwrap();
    assert_eq!((pci.bus_id.as_str(), pci.bus), ("00000000:03:00.0", 3));
    assert_eq!(nvml.device_by_pci_bus_id("0000:03:00.0").unwrap().index().unwrap(), 2);
    assert!(matches!(nvml.device_by_index(DEVICES as u32), Err(NvmlError::InvalidArg)));
}

#[test]
fn memory_and_processes_are_live() {
    let Some((_turn, _control)) = machine() else { return };
    let nvml = Nvml::init().unwrap();
    let device = nvml.device_by_index(1).unwrap();
    assert!(device.running_compute_processes().unwrap().is_empty());
    let bench = Bench::new(1);
    let buffer = bench.stream.alloc_zeros::<u8>(5_000_000).unwrap();
    let memory = device.memory_info().unwrap();
    assert_eq!((memory.total, memory.used, memory.free), (MEMORY, 5_000_000, MEMORY - 5_000_000));
    let processes = device.running_compute_processes().unwrap();
    assert_eq!(processes.len(), 1);
    assert_eq!(processes[0].pid, std::process::id());
    assert_eq!(processes[0].used_gpu_memory, UsedGpuMemory::Used(5_000_000));
    drop(buffer);
}

#[test]
fn sensors_are_those_of_the_script() {
    let Some((_turn, control)) = machine() else { return };
    let nvml = Nvml::init().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    let throttling = ThrottleReasons::HW_THERMAL_SLOWDOWN;
    let spec = NvmlSpec {
        temperature: 91,
        power_mw: 300_000,
        throttle_reasons: throttling.bits(),
        ecc_uncorrected: 3,
        ecc_corrected: 70,
        nvlinks: 2,
        unsupported: vec!["nvmlDeviceGetFanSpeed_v2".into()],
        ..NvmlSpec::default()
    };
    control.set_nvml(0, spec);
    assert_eq!(device.temperature(TemperatureSensor::Gpu).unwrap(), 91);
    assert_eq!(device.power_usage().unwrap(), 300_000);
    assert_eq!(device.enforced_power_limit().unwrap(), 350_000);
    assert_eq!(device.clock_info(Clock::SM).unwrap(), 1_980);
    assert_eq!(device.clock_info(Clock::Memory).unwrap(), 2_619);
    assert_eq!(device.current_throttle_reasons().unwrap(), throttling);
    assert!(matches!(device.fan_speed(0), Err(NvmlError::NotSupported)));
    assert_eq!(device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).unwrap(), 3);
    assert_eq!(device.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile).unwrap(), 70);
    assert_eq!(device.pcie_throughput(PcieUtilCounter::Send).unwrap(), 1_000);
    assert_eq!(device.current_pcie_link_gen().unwrap(), 4);
    assert_eq!(device.current_pcie_link_width().unwrap(), 16);
    assert!(device.link_wrapper_for(1).is_active().unwrap());
    assert!(!device.link_wrapper_for(2).is_active().unwrap());
    assert_eq!(device.link_wrapper_for(1).remote_pci_info().unwrap().bus, 3);
    let other = nvml.device_by_index(1).unwrap();
    assert!(matches!(other.link_wrapper_for(0).is_active(), Err(NvmlError::NotSupported)));
    assert_eq!(device.topology_common_ancestor(other).unwrap(), TopologyLevel::HostBridge);
    assert!(device.utilization_rates().unwrap().gpu <= 100);
}

#[test]
fn a_kernel_that_hangs_keeps_its_device_busy() {
    let Some((_turn, control)) = machine() else { return };
    let nvml = Nvml::init().unwrap();
    let device = nvml.device_by_index(2).unwrap();
    let bench = Bench::new(2);
    control.arm(Fault::LaunchHang { device: 2, launch: 1 });
    let mut out = bench.stream.alloc_zeros::<f32>(4).unwrap();
    let kernel = bench.kernel("use_globals");
    use cudarc::driver::PushKernelArg;
    unsafe { bench.stream.launch_builder(&kernel).arg(&mut out).launch(crate::threads(4)) }.unwrap();
    std::thread::sleep(Duration::from_millis(50));
    device.utilization_rates().unwrap();
    std::thread::sleep(Duration::from_millis(150));
    assert!(device.utilization_rates().unwrap().gpu >= 90);
    control.clear_faults();
    bench.stream.synchronize().unwrap();
}

#[test]
fn calls_can_hang_until_the_faults_are_cleared() {
    let Some((_turn, control)) = machine() else { return };
    control.arm(Fault::NvmlHang { call: "nvmlDeviceGetPowerUsage".into() });
    let (answer, answers) = channel();
    let asker = std::thread::spawn(move || {
        let nvml = Nvml::init().unwrap();
        let device = nvml.device_by_index(0).unwrap();
        answer.send(device.temperature(TemperatureSensor::Gpu).unwrap()).unwrap();
        answer.send(device.power_usage().unwrap()).unwrap();
    });
    assert_eq!(answers.recv().unwrap(), 40);
    assert_eq!(answers.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout));
    control.clear_faults();
    assert_eq!(answers.recv().unwrap(), 75_000);
    asker.join().unwrap();
}

#[test]
fn xids_arrive_through_event_sets() {
    let Some((_turn, control)) = machine() else { return };
    let nvml = Nvml::init().unwrap();
    let device = nvml.device_by_index(1).unwrap();
    let set = device.register_events(EventTypes::CRITICAL_XID_ERROR, nvml.create_event_set().unwrap()).unwrap();
    assert!(matches!(set.wait(1), Err(NvmlError::Timeout)));
    control.report_xid(0, 31);
    control.report_xid(1, 79);
    let event = set.wait(1_000).unwrap();
    assert_eq!(event.event_data, Some(XidError::Value(79)));
    assert_eq!(event.device.index().unwrap(), 1);
    control.arm(Fault::Xid { device: 1, launch: 1, code: 48 });
    let bench = Bench::new(1);
    let mut out = bench.stream.alloc_zeros::<f32>(4).unwrap();
    let kernel = bench.kernel("use_globals");
    use cudarc::driver::PushKernelArg;
    unsafe { bench.stream.launch_builder(&kernel).arg(&mut out).launch(crate::threads(4)) }.unwrap();
    assert_eq!(set.wait(5_000).unwrap().event_data, Some(XidError::Value(48)));
}

#[test]
fn a_lost_device_does_not_answer() {
    let Some((_turn, control)) = machine() else { return };
    let nvml = Nvml::init().unwrap();
    control.lose(3, 46);
    assert!(matches!(nvml.device_by_index(3).unwrap().memory_info(), Err(NvmlError::GpuLost)));
    assert!(nvml.device_by_index(0).unwrap().memory_info().is_ok());
    control.revive(3);
    assert!(nvml.device_by_index(3).unwrap().memory_info().is_ok());
}
