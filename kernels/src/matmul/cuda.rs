//! Products by cuBLASLt; in bf16 the operands are rounded into the stream's room first, their rows 16 bytes aligned.

use super::{Orientation, Shape};
use crate::Buffer;
use crate::cuda::{self, Argument, Compute, Launcher, Product, arguments};
use crate::elementwise;

pub(super) fn product(
    gpu: &Launcher<'_>,
    orientation: Orientation,
    out: &Buffer,
    operands: [&Buffer; 2],
    shape: Shape,
    scale: [f32; 2],
) {
    if shape.m == 0 || shape.n == 0 {
        return;
    }
    if shape.k == 0 {
        return empty_sum(gpu, out, scale[1]);
    }
    let stored = stored(orientation, shape);
    let of = |operands, bf16| Product { orientation, shape, operands, bf16, out: out.address(), scale };
    match gpu.queue.compute() {
        Compute::F32 => {
            let at = |i: usize| (operands[i].address(), stored[i][1]);
            cuda::product(gpu.queue, of([at(0), at(1)], false));
        }
        Compute::Bf16 => gpu.queue.with_room(room_bytes(shape), |room| {
            let second = room + rounded_bytes(stored[0]);
            let at = |i: usize, to: u64| (round(gpu, to, operands[i], stored[i]), stride(stored[i]));
            cuda::product(gpu.queue, of([at(0, room), at(1, second)], true));
        }),
    }
}

/// `out = beta · out`, which is not read where beta is 0.
fn empty_sum(gpu: &Launcher<'_>, out: &Buffer, beta: f32) {
    match beta {
        0.0 => elementwise::cuda::fill(gpu, out, 0.0),
        _ => elementwise::cuda::scale(gpu, out, beta),
    }
}

/// Rows and columns of both operands as they are stored.
fn stored(orientation: Orientation, Shape { m, n, k }: Shape) -> [[usize; 2]; 2] {
    match orientation {
        Orientation::Nt => [[m, k], [n, k]],
        Orientation::Nn => [[m, k], [k, n]],
        Orientation::Tn => [[k, m], [k, n]],
    }
}

/// Room for both rounded operands, whatever their orientation.
pub(super) fn room_bytes(shape: Shape) -> u64 {
    let orientations = [Orientation::Nt, Orientation::Nn, Orientation::Tn];
    let bytes = orientations.map(|orientation| stored(orientation, shape).map(rounded_bytes).iter().sum());
    bytes.into_iter().max().unwrap_or(0)
}

/// Elements from one rounded row to the next: eight of them are 16 bytes, which tensor cores load at once.
fn stride([_, columns]: [usize; 2]) -> usize {
    columns.next_multiple_of(8)
}

fn rounded_bytes(stored: [usize; 2]) -> u64 {
    (2 * stored[0] as u64 * stride(stored) as u64).next_multiple_of(256)
}

fn round(gpu: &Launcher<'_>, to: u64, from: &Buffer, stored: [usize; 2]) -> u64 {
    let [rows, columns] = stored;
    let arguments = arguments![Argument::address(to), from, rows, columns, stride(stored)];
    gpu.each("matmul_round", rows * columns, arguments);
    to
}
