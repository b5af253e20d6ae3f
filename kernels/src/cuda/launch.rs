//! Launching kernels: the one place where arguments become what the driver wants, held against the kernel's signature.

use super::signature::Parameter;
use super::{DeviceFailure, FailureKind, Queue};
use crate::Buffer;
use cudarc::driver::{result, sys};
use std::ffi::c_void;

/// A loaded kernel.
pub(super) struct Kernel {
    pub function: sys::CUfunction,
    pub parameters: Vec<Parameter>,
}

/// One argument, as the eight bytes that the driver reads it from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    kind: Parameter,
    bits: u64,
}

impl From<&Buffer> for Argument {
    fn from(buffer: &Buffer) -> Argument {
        Argument { kind: Parameter::Pointer, bits: buffer.address() }
    }
}

impl From<u32> for Argument {
    fn from(word: u32) -> Argument {
        Argument { kind: Parameter::Word, bits: word.into() }
    }
}

impl From<u64> for Argument {
    fn from(long: u64) -> Argument {
        Argument { kind: Parameter::Long, bits: long }
    }
}

impl From<usize> for Argument {
    fn from(long: usize) -> Argument {
        Argument::from(long as u64)
    }
}

impl From<f32> for Argument {
    fn from(float: f32) -> Argument {
        Argument { kind: Parameter::Float, bits: float.to_bits().into() }
    }
}

impl Argument {
    /// An address; 0 is none.
    pub(crate) fn address(at: u64) -> Argument {
        Argument { kind: Parameter::Pointer, bits: at }
    }
}

/// Arguments of different kinds as one list.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => { &mut [$($crate::cuda::Argument::from($argument)),*] };
}
pub(crate) use arguments;

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Blocks along x, y and z; none where any is 0.
    pub blocks: [usize; 3],
    /// Threads of a block along x and y.
    pub threads: [u32; 2],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

impl Grid {
    /// A row of blocks of 256 threads.
    pub(crate) fn row(blocks: usize) -> Grid {
        Grid { blocks: [blocks, 1, 1], threads: [256, 1], shared: 0 }
    }
}

/// What an operation launches its kernels with.
pub(crate) struct Launcher<'a> {
    pub(crate) op: &'static str,
    pub(crate) queue: &'a Queue,
}

impl Launcher<'_> {
    /// Runs `kernel` over `n` elements, several a thread where there are many.
    #[track_caller]
    pub(crate) fn each(&self, kernel: &str, n: usize, arguments: &mut [Argument]) {
        self.launch(kernel, Grid::row(n.div_ceil(256).min(self.queue.gpu.blocks_max() as usize)), arguments);
    }

    /// Runs `kernel` on a grid.
    ///
    /// # Panics
    /// When the arguments are not what the kernel takes; with a [`DeviceFailure`] when it cannot begin.
    #[track_caller]
    pub(crate) fn launch(&self, kernel: &str, grid: Grid, arguments: &mut [Argument]) {
        let gpu = &*self.queue.gpu;
        let found = gpu.kernel(kernel);
        let fits = arguments.iter().map(|argument| argument.kind).eq(found.parameters.iter().copied());
        assert!(fits, "{kernel} takes {:?} and got {arguments:?}", found.parameters);
        if grid.blocks.contains(&0) {
            return;
        }
        gpu.expect(self.op, gpu.current());
        if !gpu.expect(self.op, gpu.allow_shared(found, grid.shared)) {
            self.fail("more shared memory than the device has");
        }
        let [x, y, z] = grid.blocks.map(|n| u32::try_from(n).unwrap_or_else(|_| self.fail("a grid beyond 32 bits")));
        let mut pointers: [*mut c_void; 24] = [std::ptr::null_mut(); 24];
        let pointers = &mut pointers[..arguments.len()];
        pointers.iter_mut().zip(arguments).for_each(|(to, argument)| *to = (&raw mut argument.bits).cast());
        let threads = (grid.threads[0], grid.threads[1], 1);
        // SAFETY: the function belongs to a module of this device; the driver copies the arguments, which are of the kinds
        // that the kernel takes, before it returns; ranges are the caller's, who checked lengths.
        let launched =
            unsafe { result::launch_kernel(found.function, (x, y, z), threads, grid.shared, self.queue.raw, pointers) };
        gpu.expect(self.op, launched);
    }

    fn fail(&self, name: &str) -> ! {
        let device = self.queue.gpu.index;
        let kind = FailureKind::LaunchFailed;
        DeviceFailure { device, operation: self.op, kind, name: name.into(), code: 1 }.raise()
    }
}
