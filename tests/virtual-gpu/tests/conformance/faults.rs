//! Faults: bad addresses, deadlocks, losses; what sticks and what does not.

use crate::{Bench, code, machine, threads};
use cudarc::driver::sys::CUresult::*;
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use virtual_gpu::Fault;

fn store_at(bench: &Bench, elements: usize, at: i64) {
    let mut buffer = bench.stream.alloc_zeros::<f32>(elements).unwrap();
    let kernel = bench.kernel("store_at");
    unsafe { bench.stream.launch_builder(&kernel).arg(&mut buffer).arg(&at).launch(threads(1)) }.ok();
    let _ = bench.stream.synchronize();
}

#[test]
fn illegal_addresses_stick_until_the_context_ends() {
    let Some((_turn, control)) = machine() else { return };
    control.set_alignment(16);
    let cases =
        [(1000, 1000, "0 bytes past the end of a buffer of 4000 bytes"), (1024, -1, "4 bytes before a buffer of 4096")];
    for (elements, at, where_) in cases {
        let bench = Bench::new(0);
        store_at(&bench, elements, at);
        let messages = control.messages();
        assert!(messages.iter().any(|m| m.contains(where_) && m.contains("store_at")), "{messages:?}");
        assert_eq!(code(bench.stream.synchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(code(unsafe { bench.stream.alloc::<u8>(1) }), CUDA_ERROR_ILLEGAL_ADDRESS);
        Bench::new(1).stream.synchronize().unwrap();
        let _ = bench.context.check_err();
        drop(bench);
    }
    Bench::new(0).stream.synchronize().unwrap();
}

#[test]
fn freed_memory_and_shared_memory_are_guarded() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(2);
    let buffer = bench.stream.alloc_zeros::<f32>(1000).unwrap();
    let address = cudarc::driver::DevicePtr::device_ptr(&buffer, &bench.stream).0;
    drop(buffer);
    bench.stream.synchronize().unwrap();
    let (kernel, at) = (bench.kernel("store_at"), 10i64);
    unsafe { bench.stream.launch_builder(&kernel).arg(&address).arg(&at).launch(threads(1)) }.ok();
    assert_eq!(code(bench.stream.synchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert!(control.messages()[0].contains("freed before: 40 bytes into a buffer"));
    control.revive(2);
    let mut out = bench.stream.alloc_zeros::<f32>(1).unwrap();
    let (kernel, at) = (bench.kernel("shared_store"), 64i32);
    let mut launch = bench.stream.launch_builder(&kernel);
    launch.arg(&mut out).arg(&at);
    unsafe { launch.launch(LaunchConfig { shared_mem_bytes: 256, ..threads(1) }) }.ok();
    assert_eq!(code(bench.stream.synchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert!(control.messages()[0].contains("past the end of dynamic shared memory"));
    control.revive(2);
}

#[test]
fn writes_into_the_margins_are_noted() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    for (at, place) in [(-2, "8 bytes before a buffer of 1000"), (250, "0 bytes past the end of a buffer of 1000")] {
        store_at(&bench, 250, at);
        bench.stream.synchronize().unwrap();
        let violations = control.violations();
        assert!(violations.len() == 1 && violations[0].contains(place), "{violations:?}");
    }
}

#[test]
fn deadlocks_are_told() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let mut out = bench.stream.alloc_zeros::<f32>(1).unwrap();
    let kernel = bench.kernel("stuck");
    unsafe { bench.stream.launch_builder(&kernel).arg(&mut out).launch(threads(32)) }.ok();
    assert_eq!(code(bench.stream.synchronize()), CUDA_ERROR_LAUNCH_FAILED);
}

#[test]
fn the_nth_allocation_fails_and_the_next_does_not() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    control.arm(Fault::OutOfMemory { device: 0, allocation: 2 });
    let _first = bench.stream.alloc_zeros::<u8>(10).unwrap();
    assert_eq!(code(bench.stream.alloc_zeros::<u8>(10)), CUDA_ERROR_OUT_OF_MEMORY);
    bench.stream.alloc_zeros::<u8>(10).unwrap();
}

#[test]
fn the_nth_launch_can_go_wrong() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    control.arm(Fault::IllegalAddress { device: 0, launch: 2 });
    store_at(&bench, 10, 1);
    bench.stream.synchronize().unwrap();
    store_at(&bench, 10, 1);
    assert_eq!(code(bench.stream.synchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_lost_device_stays_lost() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(3);
    control.arm(Fault::DeviceLost { device: 3, launch: 2, code: 46 });
    store_at(&bench, 10, 1);
    bench.stream.synchronize().unwrap();
    store_at(&bench, 10, 1);
    assert_eq!(code(bench.stream.synchronize()), CUDA_ERROR_DEVICE_UNAVAILABLE);
    let _ = bench.context.check_err();
    drop(bench);
    assert_eq!(code(CudaContext::new(3)), CUDA_ERROR_DEVICE_UNAVAILABLE);
    control.revive(3);
    Bench::new(3).stream.synchronize().unwrap();
}

#[test]
fn memory_of_another_device_needs_peer_access() {
    let Some((_turn, control)) = machine() else { return };
    let (here, there) = (Bench::new(0), Bench::new(1));
    let mut foreign = there.stream.alloc_zeros::<f32>(16).unwrap();
    there.stream.synchronize().unwrap();
    let address = cudarc::driver::DevicePtrMut::device_ptr_mut(&mut foreign, &there.stream).0;
    let kernel = here.kernel("store_at");
    let store = || {
        here.context.bind_to_thread().unwrap();
        unsafe { here.stream.launch_builder(&kernel).arg(&address).arg(&1i64).launch(threads(1)) }.ok();
        here.stream.synchronize()
    };
    assert_eq!(code(store()), CUDA_ERROR_ILLEGAL_ADDRESS);
    let messages = control.messages();
    assert!(messages[0].contains("store_at on device 0 uses memory that is not enabled there"), "{messages:?}");
    control.revive(0);
    unsafe { cudarc::driver::sys::cuCtxEnablePeerAccess(there.context.cu_ctx(), 0) }.result().unwrap();
    store().unwrap();
    assert_eq!(there.stream.clone_dtoh(&foreign).unwrap()[1], 1.0);
}
