//! Collectives over threads: results, mismatches, aborts, rules beside a pending collective.

use crate::{Bench, machine};
use cudarc::driver::{CudaSlice, DevicePtr, DriverError};
use cudarc::nccl::{Comm, Id, ReduceOp, group_end, group_start, sys};
use half::bf16;
use std::sync::Arc;
use std::time::{Duration, Instant};
use virtual_gpu::Fault;

/// Runs every rank on its own thread and device.
fn on_ranks<T: Send>(size: usize, rank: impl Fn(usize, &Bench, Comm) -> T + Sync) -> Vec<T> {
    let id = Id::new().unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .map(|number| {
                let rank = &rank;
                scope.spawn(move || {
                    let bench = Bench::new(number);
                    let comm = Comm::from_rank(bench.stream.clone(), number, size, id).unwrap();
                    rank(number, &bench, comm)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn given<T: cudarc::driver::DeviceRepr>(bench: &Bench, values: impl Iterator<Item = T>) -> CudaSlice<T> {
    bench.stream.clone_htod(&values.collect::<Vec<T>>()).unwrap()
}

#[test]
fn collectives_are_right_on_two_and_four_ranks() {
    let Some((_turn, _control)) = machine() else { return };
    for size in [2, 4] {
        on_ranks(size, |rank, bench, comm| {
            let stream = &bench.stream;
            assert_eq!((comm.rank(), comm.world_size()), (rank, size));
            let total: usize = (1..=size).sum();
            let x = given(bench, (0..100).map(|i| (i * (rank + 1)) as f32));
            let mut y = stream.alloc_zeros::<f32>(100).unwrap();
            comm.all_reduce(&x, &mut y, &ReduceOp::Sum).unwrap();
            assert_eq!(stream.clone_dtoh(&y).unwrap()[99], (99 * total) as f32);
            comm.all_reduce(&x, &mut y, &ReduceOp::Max).unwrap();
            assert_eq!(stream.clone_dtoh(&y).unwrap()[99], (99 * size) as f32);
            let x = given(bench, (0..8 * size).map(|i| bf16::from_f32((i + rank) as f32)));
            let mut y = stream.alloc_zeros::<bf16>(8).unwrap();
            comm.reduce_scatter(&x, &mut y, &ReduceOp::Avg).unwrap();
            let mean = (size - 1) as f32 / 2.0;
            assert_eq!(stream.clone_dtoh(&y).unwrap()[3].to_f32(), (rank * 8 + 3) as f32 + mean);
            let x = given(bench, std::iter::repeat_n(rank as u8, 3));
            let mut y = stream.alloc_zeros::<u8>(3 * size).unwrap();
            comm.all_gather(&x, &mut y).unwrap();
            let want: Vec<u8> = (0..size).flat_map(|r| [r as u8; 3]).collect();
            assert_eq!(stream.clone_dtoh(&y).unwrap(), want);
            let x = given(bench, [rank as i32; 5].into_iter());
            let mut y = stream.alloc_zeros::<i32>(5).unwrap();
            comm.broadcast(Some(&x), &mut y, 1).unwrap();
            assert_eq!(stream.clone_dtoh(&y).unwrap(), [1; 5]);
            let x = given(bench, [rank as u64 + 1; 2].into_iter());
            let mut y = stream.alloc_zeros::<u64>(2).unwrap();
            comm.reduce(&x, Some(&mut y), &ReduceOp::Prod, 0).unwrap();
            let product: u64 = (1..=size as u64).product();
            assert_eq!(stream.clone_dtoh(&y).unwrap(), [if rank == 0 { product } else { 0 }; 2]);
        });
    }
}

#[test]
fn messages_go_round_a_ring_in_one_group() {
    let Some((_turn, _control)) = machine() else { return };
    on_ranks(4, |rank, bench, comm| {
        let x = given(bench, [rank as f64; 7].into_iter());
        let mut y = bench.stream.alloc_zeros::<f64>(7).unwrap();
        group_start().unwrap();
        comm.send(&x, (rank as i32 + 1) % 4).unwrap();
        comm.recv(&mut y, (rank as i32 + 3) % 4).unwrap();
        group_end().unwrap();
        assert_eq!(bench.stream.clone_dtoh(&y).unwrap(), [((rank + 3) % 4) as f64; 7]);
    });
}

#[test]
fn one_thread_can_drive_all_ranks() {
    let Some((_turn, _control)) = machine() else { return };
    let benches = [Bench::new(0), Bench::new(1)];
    let comms = Comm::from_devices(benches.iter().map(|b| b.stream.clone()).collect()).unwrap();
    let mut sums: Vec<_> = benches.iter().map(|b| given(b, [1f32; 4].into_iter())).collect();
    group_start().unwrap();
    for (comm, sum) in comms.iter().zip(&mut sums) {
        comm.all_reduce_in_place(sum, &ReduceOp::Sum).unwrap();
    }
    group_end().unwrap();
    for (bench, sum) in benches.iter().zip(&sums) {
        assert_eq!(bench.stream.clone_dtoh(sum).unwrap(), [2.0; 4]);
    }
}

/// A communicator through the plain bindings.
struct Raw(sys::ncclComm_t);

impl Raw {
    fn join(id: sys::ncclUniqueId, rank: usize, size: usize) -> Raw {
        let mut comm = std::ptr::null_mut();
        unsafe { sys::ncclCommInitRank(&mut comm, size as i32, id, rank as i32) }.result().unwrap();
        Raw(comm)
    }

    fn error(&self) -> sys::ncclResult_t {
        let mut error = sys::ncclResult_t::ncclSuccess;
        unsafe { sys::ncclCommGetAsyncError(self.0, &mut error) }.result().unwrap();
        error
    }
}

fn unique() -> sys::ncclUniqueId {
    cudarc::nccl::result::get_uniqueid().unwrap()
}

#[test]
fn splits_form_new_communicators_and_all_to_all_transposes() {
    let Some((_turn, _control)) = machine() else { return };
    let id = unique();
    std::thread::scope(|scope| {
        for rank in 0..4usize {
            scope.spawn(move || {
                let bench = Bench::new(rank);
                let comm = Raw::join(id, rank, 4);
                let mut part = std::ptr::null_mut();
                let (color, key) = ((rank % 2) as i32, -(rank as i32));
                let split = unsafe { sys::ncclCommSplit(comm.0, color, key, &mut part, std::ptr::null_mut()) };
                split.result().unwrap();
                let (mut size, mut place) = (0, 0);
                unsafe {
                    sys::ncclCommCount(part, &mut size).result().unwrap();
                    sys::ncclCommUserRank(part, &mut place).result().unwrap();
                }
                assert_eq!((size, place), (2, i32::from(rank < 2)), "keys order ranks");
                let x = given(&bench, (0..4).map(|peer| (10 * rank + peer) as i32));
                let y = bench.stream.alloc_zeros::<i32>(4).unwrap();
                let (from, to) = (x.device_ptr(&bench.stream).0, y.device_ptr(&bench.stream).0);
                let (number, stream) = (sys::ncclDataType_t::ncclInt32, bench.stream.cu_stream().cast());
                unsafe { sys::ncclAlltoAll(from as *const _, to as *mut _, 1, number, comm.0, stream) }
                    .result()
                    .unwrap();
                let want: Vec<i32> = (0..4).map(|peer| (10 * peer + rank) as i32).collect();
                assert_eq!(bench.stream.clone_dtoh(&y).unwrap(), want);
                let mut none = std::ptr::null_mut();
                let color = if rank == 0 { -1 } else { 0 };
                unsafe { sys::ncclCommSplit(comm.0, color, 0, &mut none, std::ptr::null_mut()) }.result().unwrap();
                assert_eq!(none.is_null(), rank == 0);
                unsafe { sys::ncclCommDestroy(comm.0) }.result().unwrap();
            });
        }
    });
}

#[test]
fn mismatches_name_both_sides() {
    let Some((_turn, control)) = machine() else { return };
    let id = unique();
    std::thread::scope(|scope| {
        for rank in 0..2usize {
            scope.spawn(move || {
                let bench = Bench::new(rank);
                let comm = Raw::join(id, rank, 2);
                let x = bench.stream.alloc_zeros::<f32>(8).unwrap();
                let (address, stream) = (x.device_ptr(&bench.stream).0, bench.stream.cu_stream().cast());
                let (number, how) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
                unsafe {
                    let call = sys::ncclAllReduce(
                        address as *const _,
                        address as *mut _,
                        7 + rank,
                        number,
                        how,
                        comm.0,
                        stream,
                    );
                    call.result().unwrap();
                }
                assert!(bench.stream.synchronize().is_err());
                assert_eq!(comm.error(), sys::ncclResult_t::ncclInvalidUsage);
                let text = unsafe { std::ffi::CStr::from_ptr(sys::ncclGetLastError(comm.0)) }.to_str().unwrap();
                assert!(
                    text.contains("rank 0 calls AllReduce(Sum) of 7 F32, rank 1 calls AllReduce(Sum) of 8"),
                    "{text}"
                );
                let _ = bench.context.check_err();
            });
        }
    });
    assert_eq!(control.messages().len(), 1);
}

#[test]
fn a_rank_whose_peer_is_lost_waits_until_it_aborts() {
    let Some((_turn, control)) = machine() else { return };
    control.arm(Fault::DeviceLost { device: 1, launch: 1, code: 46 });
    let id = unique();
    std::thread::scope(|scope| {
        for rank in 0..2usize {
            scope.spawn(move || {
                let bench = Bench::new(rank);
                let comm = Raw::join(id, rank, 2);
                let mut x = bench.stream.alloc_zeros::<f32>(8).unwrap();
                if rank == 1 {
                    use cudarc::driver::PushKernelArg;
                    let kernel = bench.kernel("store_at");
                    unsafe { bench.stream.launch_builder(&kernel).arg(&mut x).arg(&0i64).launch(crate::threads(1)) }
                        .ok();
                    assert!(bench.stream.synchronize().is_err());
                    let _ = bench.context.check_err();
                    return;
                }
                let (address, stream) = (x.device_ptr(&bench.stream).0, bench.stream.cu_stream().cast());
                let (number, how) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
                unsafe { sys::ncclAllReduce(address as *const _, address as *mut _, 8, number, how, comm.0, stream) }
                    .result()
                    .unwrap();
                let event = bench.stream.record_event(None).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                assert!(!event.is_complete());
                let started = Instant::now();
                unsafe { sys::ncclCommAbort(comm.0) }.result().unwrap();
                bench.stream.synchronize().unwrap();
                assert!(started.elapsed() < Duration::from_secs(2));
            });
        }
    });
}

#[test]
fn what_can_deadlock_beside_a_collective_is_noted() {
    let Some((_turn, control)) = machine() else { return };
    let id = unique();
    let benches = [Arc::new(Bench::new(0)), Arc::new(Bench::new(1))];
    let late = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for (rank, bench) in benches.iter().enumerate() {
            let late = &late;
            scope.spawn(move || {
                bench.context.bind_to_thread().unwrap();
                let comm = Raw::join(id, rank, 2);
                let x = bench.stream.alloc_zeros::<f32>(8).unwrap();
                let (address, stream) = (x.device_ptr(&bench.stream).0, bench.stream.cu_stream().cast());
                let (number, how) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
                if rank == 1 {
                    late.wait();
                }
                unsafe { sys::ncclAllReduce(address as *const _, address as *mut _, 8, number, how, comm.0, stream) }
                    .result()
                    .unwrap();
                if rank == 0 {
                    let allocate = || -> Result<_, DriverError> { bench.stream.alloc_zeros::<u8>(1) };
                    allocate().unwrap();
                    control.set_strict(true);
                    assert!(allocate().is_err());
                    control.set_strict(false);
                    late.wait();
                }
                bench.stream.synchronize().unwrap();
                bench.stream.alloc_zeros::<u8>(1).unwrap();
                bench.stream.synchronize().unwrap();
            });
        }
    });
    let violations = control.violations();
    assert_eq!(violations.len(), 2, "{violations:?}");
    assert!(violations[0].contains("cuMemAllocAsync on device 0 while a collective is pending"));
}

#[test]
fn collectives_can_be_refused_or_deliver_something_wrong() {
    let Some((_turn, control)) = machine() else { return };
    control.arm(Fault::WrongCollective { device: 1, collective: 1 });
    control.arm(Fault::CollectiveError { device: 0, collective: 2, code: 6 });
    let wrong = on_ranks(2, |rank, bench, comm| {
        let mut x = given(bench, [1f32; 64].into_iter());
        comm.all_reduce_in_place(&mut x, &ReduceOp::Sum).unwrap();
        let wrong = bench.stream.clone_dtoh(&x).unwrap().iter().filter(|x| **x != 2.0).count();
        if rank == 0 {
            let refused = comm.all_reduce_in_place(&mut x, &ReduceOp::Sum).err().unwrap();
            assert_eq!(refused.0, sys::ncclResult_t::ncclRemoteError);
        }
        wrong
    });
    assert_eq!(wrong, [0, 1]);
}
