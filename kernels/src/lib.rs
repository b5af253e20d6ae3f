//! Numerics: a device, its memory, and the operations a transformer needs, forward and backward. Buffers, sums and
//! gradients are f32; a CUDA device may round the operands of matrix products to bf16 ([`Compute`]).
//!
//! * [`Device`] owns memory and threads, [`Buffer`] is a handle on a piece of that memory, [`Stream`] orders the work.
//! * Each operation is a module with free functions. Arguments come in one order everywhere:
//!   `&Stream`, what is written, what is read, then scalars and shapes.
//! * Work is asynchronous by contract: a function returns when the work is *ordered*, not when it is done.
//!   [`Stream::to_host`], [`Stream::read_into`] and [`Stream::synchronise`] wait. No host slice of a buffer can be had.
//! * A wrong length, a buffer of another device, or a written range that overlaps another argument is a defect of the
//!   caller and panics at once with both shapes. So does a device that fails under way, with a [`cuda::DeviceFailure`] as
//!   the payload: the process is the unit that is restarted. Only opening a device and allocation return errors
//!   ([`cuda::DeviceError`], [`AllocError`]), since a caller can act on them.
//! * Values, in contrast to shapes, never panic: an index outside its table gives NaN, NaN and infinity propagate to
//!   whatever was computed from them, and the caller's guard sees them in the loss or the gradient norm.
//! * Results never depend on the number of threads, nor on the order in which a GPU runs its own: every sum has a fixed
//!   order, no float is added atomically, every random number is a function of its [`random::Draw`] and its place. Matrix
//!   products and attention may differ in the last bits between instruction sets (fused multiply-add or not); all else is
//!   the same there too. A GPU's results differ from a CPU's in the last bits; what is random takes the same integers.
//!
//! # Shape suffixes
//!
//! Buffers are row-major and names end in their shape, as in `x_ND`:
//!
//! | letter | is the number of | letter | is the number of |
//! |---|---|---|---|
//! | N | tokens, all rows flattened (B × T) | E | elements of one head (head dim) |
//! | B | rows of a micro-batch | F | elements of the feed-forward (intermediate size) |
//! | T | positions in a row (length) | V | entries of the vocabulary |
//! | D | elements of a token (hidden size) | R | rank of an adapter |
//! | H | query heads | K | key and value heads |
//!
//! # How a backend fits in
//!
//! CUDA is a variant inside `Device`, `Buffer` (a device pointer) and `Stream` (a CUDA stream); the module [`cuda`] has
//! what all its operations share. Each operation's folder holds, beside `cpu.rs`, a `cuda.rs` (the launcher) and a `.cu`
//! (the kernels); the functions in `mod.rs`, which own contract and checks, choose by the device. Callers do not change,
//! and `tests.rs`, one body that runs over every backend, covers all of them: a CUDA device is a virtual one there
//! (`tests/virtual-gpu`) unless `ANNEAL_GPU=real`. [`Device::hidden`] has an accelerator's manners without one: its memory
//! is unreadable between operations and its work waits for a synchronisation.
//!
//! Several devices sum their gradients as a [`Group`].
//!
//! # What is not here
//!
//! Models and their layers, optimizer state and schedules (crate `trainer`), files and formats (crate `formats`).

#![warn(clippy::large_stack_arrays)]

mod buffer;
pub mod cuda;
mod device;
mod gemm;
pub mod group;
mod hidden;
mod simd;
mod stream;
mod team;

pub mod adamw;
pub mod attention;
pub mod bias;
pub mod cross_entropy;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod matmul;
pub mod measure;
pub mod random;
pub mod reduce;
pub mod rms_norm;
pub mod rope;
pub mod swiglu;

#[cfg(test)]
mod testing;

pub use buffer::{Buffer, DType, Element};
pub use cuda::Compute;
pub use device::{AllocError, Device};
pub use group::Group;
pub use stream::Stream;
