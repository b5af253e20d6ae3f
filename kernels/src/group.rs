//! Ranks that sum their gradients: one device each, in one process or several.
//!
//! Not here: who starts ranks, and how an id gets from one to the others (crate `trainer`).

use crate::buffer::{Buffer, DType};
use crate::cuda::{Communicator, DeviceError, DeviceFailure};
use crate::stream::Stream;

pub use crate::cuda::UniqueId;

/// The ranks of one training. All of them call the same operations in the same order.
#[derive(Debug)]
pub enum Group {
    /// One rank: sums are what they are.
    Solo,
    /// A CUDA device a rank, over NCCL.
    Nccl(Communicator),
}

impl Group {
    /// Joins as `rank` of `world` the group that `id` names; returns once all have joined. To be made before training
    /// and before anything else waits: it allocates, which later collectives never do.
    ///
    /// # Errors
    /// [`DeviceError::Library`] without NCCL, [`DeviceError::Call`] where it cannot join the ranks.
    ///
    /// # Panics
    /// When the stream is none of a CUDA device, or `rank` is not below `world`.
    #[track_caller]
    pub fn nccl(stream: &Stream, rank: usize, world: usize, id: UniqueId) -> Result<Group, DeviceError> {
        assert!(rank < world, "group: rank {rank} of {world}");
        let Some(gpu) = stream.device().gpu() else { panic!("group: {stream:?} is none of a CUDA device") };
        Communicator::join(gpu, rank, world, id).map(Group::Nccl)
    }

    /// Which of the ranks this is, from 0.
    pub fn rank(&self) -> usize {
        match self {
            Group::Solo => 0,
            Group::Nccl(communicator) => communicator.rank(),
        }
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        match self {
            Group::Solo => 1,
            Group::Nccl(communicator) => communicator.size(),
        }
    }

    /// Replaces `buffer`, f32 and of one length on all ranks, by its sum over the ranks, in the order of the stream.
    /// The same ranks on the same devices and links give the same bits each time, and all ranks get the same bits.
    ///
    /// # Panics
    /// When the buffer is of another device or kind; with a [`DeviceFailure`] when the collective cannot begin.
    #[track_caller]
    pub fn all_reduce_sum(&self, stream: &Stream, buffer: &Buffer) {
        stream.own("all_reduce_sum", "buffer", buffer, DType::F32);
        if let (Group::Nccl(communicator), Some(queue)) = (self, stream.queue()) {
            communicator.all_reduce_sum(queue, buffer.address(), buffer.len());
        }
    }

    /// What went wrong in collectives that are under way, as far as it is known: a rank that died shows here, where it
    /// does not end them by itself. Does not wait.
    pub fn failure(&self) -> Option<DeviceFailure> {
        match self {
            Group::Solo => None,
            Group::Nccl(communicator) => communicator.failure(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::{self, Shape};
    use crate::testing::{alone, cuda_is_there, cuda_is_virtual, cuda_with, in_child, uniform};
    use crate::{Compute, Device, reduce};
    use std::path::Path;
    use virtual_gpu::Script;

    /// Each rank's result of two sums in a row, the second over a slice.
    fn ranks(world: usize, len: usize) -> Vec<Vec<f32>> {
        let id = UniqueId::new().unwrap();
        let run = |rank: usize| {
            let device = Device::cuda(rank, Compute::F32).unwrap();
            let stream = device.stream();
            let buffer = device.alloc(len, DType::F32).unwrap();
            stream.copy_from_host(&buffer, &uniform(len, rank as u32));
            let group = Group::nccl(&stream, rank, world, id).unwrap();
            assert_eq!((group.rank(), group.size()), (rank, world));
            group.all_reduce_sum(&stream, &buffer);
            group.all_reduce_sum(&stream, &buffer.slice(1..len / 2));
            assert_eq!(group.failure(), None);
            stream.to_host(&buffer)
        };
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..world).map(|rank| scope.spawn(move || run(rank))).collect();
            started.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_get_the_same_sum() {
        if !cuda_is_there() || !crate::cuda::libraries().nccl.is_found() {
            return;
        }
        let there = crate::cuda::devices().unwrap().len();
        for (world, len) in [(2, 10), (4, 5000)].into_iter().filter(|(world, _)| *world <= there) {
            let results = ranks(world, len);
            let sum = |i: usize| (0..world).map(|rank| f64::from(uniform(len, rank as u32)[i])).sum::<f64>();
            let twice = |i: usize| if (1..len / 2).contains(&i) { world as f64 } else { 1.0 };
            let wanted: Vec<f64> = (0..len).map(|i| sum(i) * twice(i)).collect();
            crate::testing::close("sum", &results[0], &wanted, 1e-5);
            assert!(results.iter().all(|result| result == &results[0]), "ranks differ");
            assert_eq!(results, ranks(world, len), "another run differs");
        }
    }

    /// A training step's worth of operations on one rank, with sums over the ranks between them.
    fn train(rank: usize, world: usize, id: UniqueId) {
        let (device, len) = (Device::cuda(rank, Compute::Bf16).unwrap(), 64 * 64);
        let stream = device.stream();
        let shape = Shape { m: 64, n: 64, k: 64 };
        stream.reserve(matmul::room_bytes(&device, shape)).unwrap();
        let [x, y, out, sum] = [len, len, len, 1].map(|len| device.alloc(len, DType::F32).unwrap());
        stream.copy_from_host(&x, &uniform(len, rank as u32));
        let group = Group::nccl(&stream, rank, world, id).unwrap();
        for _ in 0..3 {
            matmul::nt(&stream, &out, &x, &y, shape, 1.0, 0.0);
            group.all_reduce_sum(&stream, &out);
            reduce::sum_of_squares(&stream, &sum, &out);
            group.all_reduce_sum(&stream, &sum);
            matmul::tn(&stream, &y, &out, &x, shape, 1.0, 1.0);
            stream.to_host(&sum);
        }
    }

    /// Allocating, freeing or loading beside a collective that waits can block both: the virtual GPU notes each such call.
    #[test]
    fn between_collectives_nothing_is_allocated() {
        const NAME: &str = "group::tests::between_collectives_nothing_is_allocated";
        if in_child(NAME).is_some() {
            assert!(cuda_with(&Script { strict: true, ..Script::with_devices(2, 1 << 30) }));
            let id = UniqueId::new().unwrap();
            std::thread::scope(|scope| (0..2).for_each(|rank| drop(scope.spawn(move || train(rank, 2, id)))));
            return assert_eq!(virtual_gpu::control().violations(), Vec::<String>::new());
        }
        if cuda_is_virtual() {
            alone(NAME, Path::new("/"), &[]);
        }
    }

    #[test]
    fn a_single_rank_changes_nothing() {
        let (device, group) = (Device::cpu(1), Group::Solo);
        let (stream, buffer) = (device.stream(), device.alloc(3, DType::F32).unwrap());
        stream.copy_from_host(&buffer, &[1.0f32, 2.0, 3.0]);
        group.all_reduce_sum(&stream, &buffer);
        assert_eq!((stream.to_host(&buffer), group.rank(), group.size()), (vec![1.0, 2.0, 3.0], 0, 1));
    }

    #[test]
    #[should_panic(expected = "is none of a CUDA device")]
    fn a_cpu_joins_no_group() {
        let _ = Group::nccl(&Device::cpu(1).stream(), 0, 1, UniqueId::from_bytes([0; 128]));
    }
}
