//! Products over all threads: blocks along k one after another, and within a block tiles of rows and columns in any
//! order. Only the blocks along k matter for the bits of the result, and they depend on k alone.

use super::{Orientation, Shape};
use crate::gemm::{self, COLUMNS, Matrix, ROWS, Target};
use crate::simd::{PIECE, sum_of, vectorised};
use crate::team::{Shared, Team};

/// Longest block along k: a panel of 16 columns is then 20 KiB and stays in the first-level cache.
const DEPTH_MAX: usize = 320;

/// Columns of `b` that are packed at a time: with the depth above at most 5 MiB, which bounds the team's scratch.
const STRIP: usize = 4096;

/// Rows of a tile at most: with the depth above 120 KiB of `a`, which stay in the second-level cache.
const TILE_ROWS_MAX: usize = 96;

/// Columns of a tile at least, where rows alone do not give every thread something.
const TILE_COLUMNS_MIN: usize = 4 * COLUMNS;

/// Rows up to which a product with `bᵀ` is taken as dot products: packing `b` would cost more than it saves.
const SKINNY: usize = 4;

/// Columns that one thread takes at a time of a skinny product.
const SKINNY_COLUMNS: usize = 32;

pub(super) fn product(
    team: &Team,
    orientation: Orientation,
    out: &mut [f32],
    [a, b]: [&[f32]; 2],
    shape: Shape,
    scale: [f32; 2],
) {
    let Shape { m, n, k } = shape;
    if m == 0 || n == 0 {
        return;
    }
    if orientation == Orientation::Nt && m <= SKINNY {
        return skinny(team, out, [a, b], shape, scale);
    }
    let (a, b) = match orientation {
        Orientation::Nt => (Matrix::rows(a, k), Matrix::rows(b, k).transposed()),
        Orientation::Nn => (Matrix::rows(a, k), Matrix::rows(b, n)),
        Orientation::Tn => (Matrix::rows(a, m).transposed(), Matrix::rows(b, n)),
    };
    let out = Shared::new(out);
    for start in (0..n).step_by(STRIP) {
        strip(team, Strip { out: &out, n, start, columns: STRIP.min(n - start) }, [a, b], [m, k], scale);
    }
}

/// A range of columns of the result.
#[derive(Clone, Copy)]
struct Strip<'a> {
    out: &'a Shared<'a, f32>,
    n: usize,
    start: usize,
    columns: usize,
}

fn strip(team: &Team, to: Strip<'_>, [a, b]: [Matrix<'_>; 2], [m, k]: [usize; 2], [alpha, beta]: [f32; 2]) {
    let depth_max = even(k, DEPTH_MAX, 1);
    for p in (0..k.max(1)).step_by(depth_max) {
        let depth = depth_max.min(k - p);
        let beta = if p == 0 { beta } else { 1.0 };
        let b = if depth == 0 { b } else { b.at(p, to.start) };
        let a = if depth == 0 { a } else { a.at(0, p) };
        team.scratch(gemm::packed_len(depth, to.columns), |panels| {
            pack(team, panels, b, [depth, to.columns]);
            tiles(team, to, a, panels, [m, depth], [alpha, beta]);
        });
    }
}

fn pack(team: &Team, panels: &mut [f32], b: Matrix<'_>, [depth, columns]: [usize; 2]) {
    if depth == 0 {
        return;
    }
    let together = (PIECE / depth).next_multiple_of(COLUMNS).max(COLUMNS);
    team.split([panels], [together * depth], |i, [panels]| {
        let start = i * together;
        gemm::pack(panels, b.at(0, start), depth, together.min(columns - start));
    });
}

/// One block along k, over all tiles.
fn tiles(team: &Team, to: Strip<'_>, a: Matrix<'_>, panels: &[f32], [m, depth]: [usize; 2], [alpha, beta]: [f32; 2]) {
    let rows = even(m, TILE_ROWS_MAX, ROWS);
    let wanted = (4 * team.threads()).div_ceil(m.div_ceil(rows));
    let columns = to.columns.div_ceil(wanted).max(TILE_COLUMNS_MIN).next_multiple_of(COLUMNS).min(to.columns);
    let across = to.columns.div_ceil(columns);
    let crew = team.for_work(m * to.columns * depth);
    crew.each_with(m.div_ceil(rows) * across, Vec::new, |scratch, tile| {
        let (i, j) = (tile / across * rows, tile % across * columns);
        let (m, n) = (rows.min(m - i), columns.min(to.columns - j));
        let a = if depth == 0 { a } else { near(scratch, a.at(i, 0), [m, depth]) };
        let panels = &panels[j * depth..][..gemm::packed_len(depth, n)];
        let first = i * to.n + to.start + j;
        // SAFETY: tiles are disjoint, and `each_with` hands each out once; the pointer stays inside the result, whose
        // elements first .. first + (m - 1) · n + n this tile's rows lie in.
        unsafe {
            let data = to.out.base(first, (m - 1) * to.n + n);
            gemm::multiply(Target { data, stride: to.n, alpha, beta }, a, panels, [m, n, depth]);
        }
    });
}

/// `a` as the kernel reads it well: where its rows are contiguous as it is, else transposed into scratch.
fn near<'a>(scratch: &'a mut Vec<f32>, a: Matrix<'a>, [m, depth]: [usize; 2]) -> Matrix<'a> {
    if a.column == 1 {
        return a;
    }
    scratch.resize(m * depth, 0.0);
    gemm::transpose(scratch, depth, a.transposed(), [depth, m]);
    Matrix::rows(scratch, depth)
}

/// Length of the blocks that `n` is cut into: as even as multiples of `unit` allow, none above `max`.
fn even(n: usize, max: usize, unit: usize) -> usize {
    let pieces = n.div_ceil(max).max(1);
    n.div_ceil(pieces).next_multiple_of(unit).max(unit)
}

/// A few rows against all of `b`: generation, where reading `b` is all that counts.
fn skinny(team: &Team, out: &mut [f32], [a, b]: [&[f32]; 2], Shape { m, n, k }: Shape, scale: [f32; 2]) {
    let out = Shared::new(out);
    team.each(n.div_ceil(SKINNY_COLUMNS), |piece| {
        for j in piece * SKINNY_COLUMNS..n.min((piece + 1) * SKINNY_COLUMNS) {
            for i in 0..m {
                // SAFETY: pieces are disjoint ranges of columns, and this one holds one element at a time.
                let to = unsafe { out.slice(i * n + j, i * n + j + 1) };
                gemm::store_row(to, &[dot(&a[i * k..][..k], &b[j * k..][..k])], scale);
            }
        }
    });
}

vectorised! {
    fn dot(a: &[f32], b: &[f32]) -> f32 {
        sum_of([a, b], |[a, b]| a * b)
    }
}
