//! Memory: accounting, mistakes, asynchrony, registration, copies between devices.

use crate::{Bench, DEVICES, MEMORY, code, machine};
use cudarc::driver::sys::CUresult::*;
use cudarc::driver::{CudaContext, DevicePtr, result, sys};

#[test]
fn accounting_is_exact_and_running_out_leaves_the_device_usable() {
    let Some((_turn, control)) = machine() else { return };
    let context = CudaContext::new(3).unwrap();
    let stream = context.new_stream().unwrap();
    assert_eq!(control.used_bytes(3), 0);
    let buffer = stream.alloc_zeros::<u8>(1_000_001).unwrap();
    assert_eq!(control.used_bytes(3), 1_000_001);
    assert_eq!(context.mem_get_info().unwrap(), (MEMORY as usize - 1_000_001, MEMORY as usize));
    let too_much = unsafe { stream.alloc::<u8>(MEMORY as usize - 1_000_000) };
    assert_eq!(code(too_much), CUDA_ERROR_OUT_OF_MEMORY);
    let rest = unsafe { stream.alloc::<u8>(MEMORY as usize - 1_000_001) }.unwrap();
    drop((buffer, rest));
    stream.synchronize().unwrap();
    assert_eq!(control.used_bytes(3), 0);
    assert_eq!(stream.clone_dtoh(&stream.clone_htod(&[1u8, 2, 3]).unwrap()).unwrap(), [1, 2, 3]);
}

#[test]
fn fresh_memory_is_poisoned() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let fresh = unsafe { bench.stream.alloc::<f32>(100) }.unwrap();
    assert!(bench.stream.clone_dtoh(&fresh).unwrap().iter().all(|x| x.is_nan()));
    control.set_poison(false);
    let fresh = unsafe { bench.stream.alloc::<f32>(100) }.unwrap();
    assert!(bench.stream.clone_dtoh(&fresh).unwrap().iter().all(|x| *x == 0.0));
}

#[test]
fn wrong_frees_are_refused() {
    let Some((_turn, _control)) = machine() else { return };
    let context = CudaContext::new(0).unwrap();
    context.bind_to_thread().unwrap();
    unsafe {
        let address = result::malloc_sync(1000).unwrap();
        assert_eq!(code(result::free_sync(address + 4)), CUDA_ERROR_INVALID_VALUE);
        result::free_sync(address).unwrap();
        assert_eq!(code(result::free_sync(address)), CUDA_ERROR_INVALID_VALUE);
        let mut foreign = [0u8; 64];
        assert_eq!(code(result::free_sync(foreign.as_mut_ptr() as u64)), CUDA_ERROR_INVALID_VALUE);
        let host = result::malloc_host(100, 0).unwrap();
        assert_eq!(code(result::free_sync(host as u64)), CUDA_ERROR_INVALID_VALUE);
        result::free_host(host).unwrap();
        assert_eq!(code(result::malloc_sync(0)), CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn copies_past_the_end_are_refused_and_told() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let buffer = bench.stream.alloc_zeros::<u8>(100).unwrap();
    let (address, _used) = buffer.device_ptr(&bench.stream);
    let refused = unsafe { result::memcpy_htod_sync(address, &[0u8; 101]) };
    assert_eq!(code(refused), CUDA_ERROR_INVALID_VALUE);
    let messages = control.messages();
    assert!(messages[0].contains("0 bytes into a buffer of 100 bytes of device 0"), "{messages:?}");
    let refused = unsafe { result::memset_d8_async(address + 90, 1, 11, bench.stream.cu_stream()) };
    assert_eq!(code(refused), CUDA_ERROR_INVALID_VALUE);
    unsafe { result::memset_d8_async(address + 90, 1, 10, bench.stream.cu_stream()) }.unwrap();
    bench.stream.synchronize().unwrap();
}

#[test]
fn words_are_set_in_stream_order() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let buffer = bench.stream.alloc_zeros::<u32>(10).unwrap();
    let address = buffer.device_ptr(&bench.stream).0;
    unsafe { sys::cuMemsetD32Async(address, 0x0102_0304, 10, bench.stream.cu_stream()) }.result().unwrap();
    assert_eq!(bench.stream.clone_dtoh(&buffer).unwrap(), [0x0102_0304; 10]);
    let odd = unsafe { sys::cuMemsetD32Async(address + 2, 0, 1, bench.stream.cu_stream()) };
    assert_eq!(odd, CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn pinned_memory_is_copied_when_the_stream_comes_to_it() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let mut host = vec![0u32; 4096];
    let (address, bytes) = (host.as_mut_ptr(), host.len() * 4);
    let buffer = bench.stream.alloc_zeros::<u32>(4096).unwrap();
    let device = buffer.device_ptr(&bench.stream).0;
    bench.stream.synchronize().unwrap();
    let delayed = |value: u32, pinned: bool| {
        control.arm(virtual_gpu::Fault::LaunchHang { device: 0, launch: 1 });
        let kernel = bench.kernel("use_globals");
        let mut out = unsafe { bench.stream.alloc::<f32>(1) }.unwrap();
        use cudarc::driver::PushKernelArg;
        unsafe { bench.stream.launch_builder(&kernel).arg(&mut out).launch(crate::threads(1)) }.unwrap();
        unsafe {
            address.write(value);
            sys::cuMemcpyHtoDAsync_v2(device, address.cast(), bytes, bench.stream.cu_stream()).result().unwrap();
            address.write(value + 1);
        }
        control.clear_faults();
        let got = bench.stream.clone_dtoh(&buffer).unwrap()[0];
        assert_eq!(got, if pinned { value + 1 } else { value });
    };
    delayed(10, false);
    unsafe {
        sys::cuMemHostRegister_v2(address.cast(), bytes, 0).result().unwrap();
        assert_eq!(sys::cuMemHostRegister_v2(address.add(10).cast(), 4, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    delayed(20, true);
    unsafe {
        let mut kind = 0u32;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, address as u64).result().unwrap();
        assert_eq!(kind, sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32);
        sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, device).result().unwrap();
        assert_eq!(kind, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32);
        sys::cuMemHostUnregister(address.cast()).result().unwrap();
        assert_eq!(sys::cuMemHostUnregister(address.cast()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    }
    delayed(30, false);
}

#[test]
fn peers_are_enabled_once_and_copied_between() {
    let Some((_turn, control)) = machine() else { return };
    let (a, b) = (Bench::new(0), Bench::new(1));
    let mut can = 0;
    unsafe { sys::cuDeviceCanAccessPeer(&mut can, 0, 1) }.result().unwrap();
    assert_eq!(can, 1);
    a.context.bind_to_thread().unwrap();
    let peer = b.context.cu_ctx();
    unsafe {
        sys::cuCtxEnablePeerAccess(peer, 0).result().unwrap();
        assert_eq!(sys::cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        sys::cuCtxDisablePeerAccess(peer).result().unwrap();
        assert_eq!(sys::cuCtxDisablePeerAccess(peer), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        control.set_peer_access(false);
        assert_eq!(sys::cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        sys::cuDeviceCanAccessPeer(&mut can, 0, 1).result().unwrap();
    }
    assert_eq!(can, 0);
    let from = a.stream.clone_htod(&[7f32; 100]).unwrap();
    let mut to = b.stream.alloc_zeros::<f32>(100).unwrap();
    b.stream.memcpy_dtod(&from, &mut to).unwrap();
    assert_eq!(b.stream.clone_dtoh(&to).unwrap(), [7f32; 100]);
    control.arm(virtual_gpu::Fault::WrongPeerCopy { device: 0, copy: 1 });
    b.stream.memcpy_dtod(&from, &mut to).unwrap();
    let wrong = b.stream.clone_dtoh(&to).unwrap().iter().filter(|x| **x != 7.0).count();
    assert_eq!(wrong, 1);
}

#[test]
fn pci_places_differ() {
    let Some((_turn, _control)) = machine() else { return };
    let _context = CudaContext::new(0).unwrap();
    let place = |device: i32| {
        let mut text = [0u8; 32];
        unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), 32, device) }.result().unwrap();
        std::ffi::CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
    };
    assert_eq!(place(0), "0000:01:00.0");
    assert_eq!(place(DEVICES as i32 - 1), "0000:04:00.0");
}

#[test]
fn host_registration_can_fail() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    bench.context.bind_to_thread().unwrap();
    let mut host = [0u8; 4096];
    control.arm(virtual_gpu::Fault::HostRegistration { device: 0, registration: 1 });
    unsafe {
        let address = host.as_mut_ptr().cast();
        assert_eq!(sys::cuMemHostRegister_v2(address, 4096, 0), CUDA_ERROR_OUT_OF_MEMORY);
        sys::cuMemHostRegister_v2(address, 4096, 0).result().unwrap();
        sys::cuMemHostUnregister(address).result().unwrap();
    }
}

#[test]
fn jitter_shows_a_forgotten_wait() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    // Waits between streams are this test's own.
    unsafe { bench.context.disable_event_tracking() };
    let other = bench.context.new_stream().unwrap();
    let mut buffer = bench.stream.alloc_zeros::<u8>(64).unwrap();
    let mut copy = bench.stream.alloc_zeros::<u8>(64).unwrap();
    bench.stream.synchronize().unwrap();
    control.set_jitter(200);
    let mut wrong = |waits: bool| {
        let round = |value: u8| {
            let address = buffer.device_ptr(&bench.stream).0;
            unsafe { result::memset_d8_async(address, value, 64, bench.stream.cu_stream()) }.unwrap();
            if waits {
                other.join(&bench.stream).unwrap();
            }
            other.memcpy_dtod(&buffer, &mut copy).unwrap();
            bench.context.synchronize().unwrap();
            usize::from(other.clone_dtoh(&copy).unwrap() != [value; 64])
        };
        (1..=40).map(round).sum::<usize>()
    };
    assert_eq!(wrong(true), 0);
    assert!(wrong(false) > 0);
    bench.stream.memset_zeros(&mut buffer).unwrap();
}

#[test]
fn rectangles_are_copied_both_ways() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let buffer = bench.stream.alloc_zeros::<u8>(8 * 6).unwrap();
    let device = buffer.device_ptr(&bench.stream).0;
    let host: Vec<u8> = (0..20).collect();
    let mut back = [0u8; 6];
    let stream = bench.stream.cu_stream();
    // Three bytes of two rows of five, to column 2 of rows 1 and 2 of eight.
    let rectangle = |height| sys::CUDA_MEMCPY2D {
        srcXInBytes: 1,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: host.as_ptr().cast(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        srcPitch: 5,
        dstXInBytes: 2,
        dstY: 1,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: std::ptr::null_mut(),
        dstDevice: device,
        dstArray: std::ptr::null_mut(),
        dstPitch: 8,
        WidthInBytes: 3,
        Height: height,
    };
    unsafe { sys::cuMemcpy2DAsync_v2(&rectangle(2), stream) }.result().unwrap();
    let all = bench.stream.clone_dtoh(&buffer).unwrap();
    assert_eq!((&all[10..13], &all[18..21]), (&host[1..4], &host[6..9]));
    assert_eq!(all.iter().filter(|byte| **byte != 0).count(), 6);
    assert_eq!(unsafe { sys::cuMemcpy2DAsync_v2(&rectangle(6), stream) }, CUDA_ERROR_INVALID_VALUE);
    assert!(control.messages()[0].contains("copy of a rectangle, target"));
    let home = sys::CUDA_MEMCPY2D {
        srcXInBytes: 2,
        srcY: 1,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: std::ptr::null(),
        srcDevice: device,
        srcPitch: 8,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: back.as_mut_ptr().cast(),
        dstDevice: 0,
        dstPitch: 3,
        ..rectangle(2)
    };
    unsafe { sys::cuMemcpy2DAsync_v2(&home, stream) }.result().unwrap();
    assert_eq!(back, [1, 2, 3, 6, 7, 8]);
}

#[test]
fn pools_tell_what_is_used() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let mut pool = std::ptr::null_mut();
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
    let mut used = 0u64;
    let _buffer = bench.stream.alloc_zeros::<u8>(12_345).unwrap();
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&mut pool, 0).result().unwrap();
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut most = u64::MAX;
        sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut most).cast()).result().unwrap();
        sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut used).cast()).result().unwrap();
    }
    assert_eq!(used, 12_345);
}
