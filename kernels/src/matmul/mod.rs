//! Matrix products: `out = alpha · op(a) · op(b) + beta · out`, in the three orientations that a linear layer needs.
//!
//! For a layer `y_NF = x_ND · w_FDᵀ` (weights as Hugging Face stores them, `[out, in]`):
//!
//! | | orientation | m, n, k |
//! |---|---|---|
//! | forward `y = x wᵀ` | [`nt`] | N, F, D |
//! | input gradient `dx = dy w` | [`nn`] | N, D, F |
//! | weight gradient `dw += dyᵀ x` | [`tn`] | F, D, N |
//!
//! With `beta == 0` the old `out` is not read, whatever it holds. Each element is summed over k in one fixed order.

mod cpu;
mod cuda;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use reference::product as textbook;

use crate::cuda::Compute;
use crate::stream::{Arguments, expect};
use crate::{Buffer, Device, Stream};

/// The result is m × n, the sum runs over k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Length of each sum.
    pub k: usize,
}

/// Which operand is stored transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Orientation {
    /// `a_mk · b_nkᵀ`
    Nt,
    /// `a_mk · b_kn`
    Nn,
    /// `a_kmᵀ · b_kn`
    Tn,
}

/// `out_mn = alpha · a_mk · b_nkᵀ + beta · out`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn nt(stream: &Stream, out: &Buffer, a: &Buffer, b: &Buffer, shape: Shape, alpha: f32, beta: f32) {
    product(stream, Orientation::Nt, out, [a, b], shape, [alpha, beta]);
}

/// `out_mn = alpha · a_mk · b_kn + beta · out`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn nn(stream: &Stream, out: &Buffer, a: &Buffer, b: &Buffer, shape: Shape, alpha: f32, beta: f32) {
    product(stream, Orientation::Nn, out, [a, b], shape, [alpha, beta]);
}

/// `out_mn = alpha · a_kmᵀ · b_kn + beta · out`.
///
/// # Panics
/// As all operations, on lengths that do not fit.
#[track_caller]
pub fn tn(stream: &Stream, out: &Buffer, a: &Buffer, b: &Buffer, shape: Shape, alpha: f32, beta: f32) {
    product(stream, Orientation::Tn, out, [a, b], shape, [alpha, beta]);
}

/// Room that a product of this shape needs on a stream, for [`Stream::reserve`]: both operands rounded to bf16, where the
/// device multiplies in bf16.
pub fn room_bytes(device: &Device, shape: Shape) -> u64 {
    if device.compute() == Compute::Bf16 { cuda::room_bytes(shape) } else { 0 }
}

/// The product of one orientation; `scale` is alpha and beta.
#[track_caller]
pub(crate) fn product(
    stream: &Stream,
    orientation: Orientation,
    out: &Buffer,
    [a, b]: [&Buffer; 2],
    shape: Shape,
    scale: [f32; 2],
) {
    let Shape { m, n, k } = shape;
    expect("matmul", "out", out, &[m, n]);
    expect("matmul", "a", a, &[m, k]);
    expect("matmul", "b", b, &[n, k]);
    let arguments = Arguments { reads: [a, b], indices: [], writes: [out] };
    if let Some(gpu) = stream.cuda("matmul", &arguments) {
        return cuda::product(&gpu, orientation, out, [a, b], shape, scale);
    }
    stream.launch("matmul", arguments, move |team, reads, [], [out]| {
        cpu::product(team, orientation, out, reads, shape, scale);
    });
}
