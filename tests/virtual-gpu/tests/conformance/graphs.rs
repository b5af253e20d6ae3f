//! Capture and graphs.

use crate::{Bench, code, machine, threads};
use cudarc::driver::sys::CUresult::*;
use cudarc::driver::sys::CUstreamCaptureMode::*;
use cudarc::driver::{DevicePtr, PushKernelArg, result, sys};
use virtual_gpu::Fault;

const NONE: sys::CUgraphInstantiate_flags = sys::CUgraphInstantiate_flags(0);

#[test]
fn a_graph_does_its_work_at_each_launch() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    // Events recorded outside of a capture cannot be waited for inside.
    unsafe { bench.context.disable_event_tracking() };
    let (stream, kernel) = (&bench.stream, bench.kernel("saxpy"));
    let x = stream.clone_htod(&[1f32; 8]).unwrap();
    let mut y = stream.clone_htod(&[0f32; 8]).unwrap();
    let launches = control.launches(0);
    stream.begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    for factor in [1f32, 10.0] {
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&factor).arg(&x).arg(&mut y).arg(&8usize);
        unsafe { launch.launch(threads(8)) }.unwrap();
    }
    let graph = stream.end_capture(NONE).unwrap().unwrap();
    assert_eq!(control.launches(0), launches);
    assert_eq!(stream.clone_dtoh(&y).unwrap(), [0.0; 8]);
    for round in 1..4 {
        graph.launch().unwrap();
        assert_eq!(stream.clone_dtoh(&y).unwrap(), [11.0 * round as f32; 8]);
    }
    assert_eq!(control.launches(0), launches + 6);
    control.arm(Fault::IllegalAddress { device: 0, launch: 2 });
    graph.launch().unwrap();
    assert_eq!(code(stream.synchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
    let _ = bench.context.check_err();
}

#[test]
fn what_a_capture_forbids_spoils_it() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let stream = bench.stream.cu_stream();
    let spoiled = |call: &dyn Fn() -> sys::CUresult, want: sys::CUresult| unsafe {
        sys::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL).result().unwrap();
        assert_eq!(call(), want);
        let mut graph = std::ptr::null_mut();
        assert_eq!(sys::cuStreamEndCapture(stream, &mut graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert!(graph.is_null());
    };
    let mut address = 0;
    spoiled(&|| unsafe { sys::cuStreamSynchronize(stream) }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    spoiled(&|| unsafe { sys::cuCtxSynchronize() }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    spoiled(&|| unsafe { sys::cuMemAlloc_v2(&raw const address as *mut _, 8) }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).unwrap();
    let query = || unsafe {
        sys::cuEventRecord(event, stream).result().unwrap();
        sys::cuEventQuery(event)
    };
    spoiled(&query, CUDA_ERROR_CAPTURED_EVENT);
    address += 1;
    assert_eq!(address, 1);
    bench.stream.synchronize().unwrap();
}

#[test]
fn other_streams_take_part_and_must_be_joined() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let other = bench.context.new_stream().unwrap();
    let buffer = bench.stream.alloc_zeros::<u8>(64).unwrap();
    let address = buffer.device_ptr(&bench.stream).0;
    bench.context.synchronize().unwrap();
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
    let (fork, join) = (result::event::create(flags).unwrap(), result::event::create(flags).unwrap());
    let capture = |joined: bool| unsafe {
        let (main, side) = (bench.stream.cu_stream(), other.cu_stream());
        sys::cuStreamBeginCapture_v2(main, CU_STREAM_CAPTURE_MODE_RELAXED).result().unwrap();
        sys::cuEventRecord(fork, main).result().unwrap();
        sys::cuStreamWaitEvent(side, fork, 0).result().unwrap();
        sys::cuMemsetD8Async(address, 7, 64, side).result().unwrap();
        if joined {
            sys::cuEventRecord(join, side).result().unwrap();
            sys::cuStreamWaitEvent(main, join, 0).result().unwrap();
        }
        let mut graph = std::ptr::null_mut();
        let ended = sys::cuStreamEndCapture(main, &mut graph);
        (ended, graph)
    };
    assert_eq!(capture(false).0, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    let (ended, graph) = capture(true);
    ended.result().unwrap();
    unsafe {
        let mut count = 0;
        sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count).result().unwrap();
        assert_eq!(count, 1);
        let mut executable = std::ptr::null_mut();
        sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0).result().unwrap();
        sys::cuGraphLaunch(executable, bench.stream.cu_stream()).result().unwrap();
        sys::cuGraphExecDestroy(executable).result().unwrap();
        sys::cuGraphDestroy(graph).result().unwrap();
    }
    assert_eq!(bench.stream.clone_dtoh(&buffer).unwrap(), [7; 64]);
}
