//! Modelled time: copies overlap products, waits join streams, slow devices and collectives take their share.

use crate::{Bench, machine};
use cudarc::driver::{DevicePtr, result, sys};
use cudarc::nccl::{Comm, ReduceOp, group_end, group_start};
use virtual_gpu::Script;

const MIB: usize = 1 << 20;

/// Modelled nanoseconds of a stream.
fn time(control: virtual_gpu::Control, stream: &cudarc::driver::CudaStream) -> u64 {
    control.stream_time(stream.cu_stream() as usize)
}

/// Sets so many bytes in a stream.
fn fill(bench: &Bench, stream: sys::CUstream, bytes: usize) {
    let buffer = unsafe { bench.stream.alloc::<u8>(bytes) }.unwrap();
    bench.stream.synchronize().unwrap();
    unsafe { result::memset_d8_async(buffer.device_ptr(&bench.stream).0, 0, bytes, stream) }.unwrap();
    unsafe { result::stream::synchronize(stream) }.unwrap();
}

#[test]
fn costs_follow_the_figures_of_the_script() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let cost = |bytes| {
        let before = time(control, &bench.stream);
        fill(&bench, bench.stream.cu_stream(), bytes);
        time(control, &bench.stream) - before
    };
    // 500 GB/s, half of the memory's bandwidth, and 4 µs a launch.
    assert_eq!(cost(MIB), 4_000 + 2_097);
    control.set_slow(0, 3.0);
    assert_eq!(cost(MIB), 3 * 4_000 + 6_291);
    assert_eq!(Script::default().devices[0].memory_bandwidth, 1e12);
}

#[test]
fn events_measure_and_join_streams() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let other = bench.context.new_stream().unwrap();
    let buffers = [16 * MIB, 4 * MIB].map(|bytes| unsafe { bench.stream.alloc::<u8>(bytes) }.unwrap());
    bench.context.synchronize().unwrap();
    let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let set = |buffer: &cudarc::driver::CudaSlice<u8>, stream: &cudarc::driver::CudaStream| {
        let address = buffer.device_ptr(&bench.stream).0;
        unsafe { result::memset_d8_async(address, 0, buffer.len(), stream.cu_stream()) }.unwrap();
    };
    // Both streams start where the host is now.
    let start = bench.stream.record_event(timed).unwrap();
    set(&buffers[0], &bench.stream);
    set(&buffers[1], &other);
    let long = bench.stream.record_event(timed).unwrap();
    let short = other.record_event(timed).unwrap();
    other.wait(&long).unwrap();
    let joined = other.record_event(timed).unwrap();
    bench.context.synchronize().unwrap();
    let (long_ms, short_ms) = (start.elapsed_ms(&long).unwrap(), start.elapsed_ms(&short).unwrap());
    assert!((0.037..0.039).contains(&long_ms), "{long_ms}");
    assert!((0.012..0.0127).contains(&short_ms), "the streams overlap: {short_ms}");
    assert_eq!(start.elapsed_ms(&joined).unwrap(), long_ms, "a wait takes the later time");
    assert!(control.virtual_time(0) >= time(control, &other));
}

#[test]
fn what_the_host_waited_for_lies_before_what_it_issues() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let other = bench.context.new_stream().unwrap();
    fill(&bench, bench.stream.cu_stream(), 8 * MIB);
    let before = time(control, &bench.stream);
    fill(&bench, other.cu_stream(), MIB);
    assert!(time(control, &other) >= before + 4_000 + 2_097);
}

#[test]
fn collectives_end_together_and_overlap_other_streams() {
    let Some((_turn, control)) = machine() else { return };
    let benches = [Bench::new(0), Bench::new(1)];
    let comms = Comm::from_devices(benches.iter().map(|b| b.stream.clone()).collect()).unwrap();
    let mut sums = [0, 1].map(|rank: usize| benches[rank].stream.alloc_zeros::<f32>(MIB).unwrap());
    benches.iter().for_each(|bench| bench.context.synchronize().unwrap());
    // One rank comes late; both then take 4 MiB over 100 GB/s, two hops of 8 µs and a launch of 4 µs.
    fill(&benches[1], benches[1].stream.cu_stream(), 8 * MIB);
    let late = time(control, &benches[1].stream).max(time(control, &benches[0].stream));
    group_start().unwrap();
    for (comm, sum) in comms.iter().zip(&mut sums) {
        comm.all_reduce_in_place(sum, &ReduceOp::Sum).unwrap();
    }
    group_end().unwrap();
    benches.iter().for_each(|bench| bench.context.synchronize().unwrap());
    let ends = [0, 1].map(|rank: usize| time(control, &benches[rank].stream));
    assert_eq!(ends[0], ends[1]);
    assert_eq!(ends[0] - late, 41_943 + 20_000);
}
