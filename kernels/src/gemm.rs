//! The block product under matrix products and attention: `c = alpha · a · b + beta · c` on one thread.
//!
//! After Goto and van de Geijn (2008): `b` is packed into panels of 16 columns, and a kernel keeps a tile of 6 × 16 of
//! `c` in registers while it runs along k. `a` is read where it lies, by row and column stride, so that it may be
//! transposed. Each element of `c` is one chain of k multiply-adds in order, whatever the tile it falls in; how rows
//! and columns are spread over threads therefore never changes a bit.
//!
//! Not here: blocking over k and over threads (`matmul/cpu.rs`).

/// Rows of a register tile.
pub(crate) const ROWS: usize = 6;

/// Columns of a register tile and of a packed panel: two vectors of eight.
pub(crate) const COLUMNS: usize = 16;

type Tile = [[f32; COLUMNS]; ROWS];

/// A matrix in someone's memory: element (i, j) stands at `i · row + j · column`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub data: &'a [f32],
    pub row: usize,
    pub column: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `width` elements one after another.
    pub(crate) fn rows(data: &'a [f32], width: usize) -> Matrix<'a> {
        Matrix { data, row: width, column: 1 }
    }

    pub(crate) fn transposed(self) -> Matrix<'a> {
        Matrix { data: self.data, row: self.column, column: self.row }
    }

    /// The part that starts at row `i`, column `j`.
    pub(crate) fn at(self, i: usize, j: usize) -> Matrix<'a> {
        Matrix { data: &self.data[i * self.row + j * self.column..], ..self }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }
}

/// Elements that [`pack`] fills for a matrix of `k` rows and `n` columns.
pub(crate) fn packed_len(k: usize, n: usize) -> usize {
    n.div_ceil(COLUMNS) * COLUMNS * k
}

/// Packs `b`, k rows of n columns, into panels of [`COLUMNS`] columns, row after row; the last is filled up with zeros.
pub(crate) fn pack(panels: &mut [f32], b: Matrix<'_>, k: usize, n: usize) {
    assert!(b.holds(k, n) && panels.len() == packed_len(k, n), "pack: {k} x {n}");
    if k == 0 {
        return;
    }
    for (p, panel) in panels.chunks_exact_mut(COLUMNS * k).enumerate() {
        let (start, width) = (p * COLUMNS, COLUMNS.min(n - p * COLUMNS));
        if b.column == 1 {
            pack_rows(panel, b.at(0, start), width);
        } else {
            pack_columns(panel, b.at(0, start), width);
        }
    }
}

/// Rows of `b` are contiguous: copy a piece of each.
fn pack_rows(panel: &mut [f32], b: Matrix<'_>, width: usize) {
    for (i, to) in panel.chunks_exact_mut(COLUMNS).enumerate() {
        to[..width].copy_from_slice(&b.data[i * b.row..][..width]);
        to[width..].fill(0.0);
    }
}

/// Columns of `b` lie along its memory: transpose.
fn pack_columns(panel: &mut [f32], b: Matrix<'_>, width: usize) {
    let k = panel.len() / COLUMNS;
    if width < COLUMNS {
        panel.fill(0.0);
    }
    transpose(panel, COLUMNS, b.transposed(), [width, k]);
}

/// `to[j · stride + i] = from(i, j)` for m rows of n elements that are contiguous in `from`.
pub(crate) fn transpose(to: &mut [f32], stride: usize, from: Matrix<'_>, [m, n]: [usize; 2]) {
    const SIDE: usize = 8;
    assert!(from.column == 1 && from.holds(m, n), "transpose: {m} x {n}");
    for i in (0..m).step_by(SIDE) {
        for j in (0..n).step_by(SIDE) {
            let (rows, columns) = (SIDE.min(m - i), SIDE.min(n - j));
            let (from, to) = (from.at(i, j), &mut to[j * stride + i..]);
            let square = [rows, columns] == [SIDE; 2];
            if square {
                turn(to, stride, from.data, from.row, [SIDE; 2])
            } else {
                turn(to, stride, from.data, from.row, [rows, columns])
            }
        }
    }
}

/// A small transpose; with constant sides the compiler unrolls it.
#[inline(always)]
fn turn(to: &mut [f32], to_row: usize, from: &[f32], from_row: usize, [m, n]: [usize; 2]) {
    for j in 0..n {
        let to = &mut to[j * to_row..][..m];
        to.iter_mut().enumerate().for_each(|(i, to)| *to = from[i * from_row + j]);
    }
}

/// Where a product goes: m rows of n columns, rows `stride` apart.
pub(crate) struct Target {
    pub data: *mut f32,
    pub stride: usize,
    pub alpha: f32,
    /// With 0 the old content is not read.
    pub beta: f32,
}

/// [`multiply`] into a slice.
pub(crate) fn multiply_into(
    c: &mut [f32],
    stride: usize,
    a: Matrix<'_>,
    panels: &[f32],
    [m, n, k]: [usize; 3],
    [alpha, beta]: [f32; 2],
) {
    assert!(m == 0 || n == 0 || (n <= stride && (m - 1) * stride + n <= c.len()), "multiply: {m} x {n} by {stride}");
    // SAFETY: the target lies inside `c`, which this call alone holds.
    unsafe { multiply(Target { data: c.as_mut_ptr(), stride, alpha, beta }, a, panels, [m, n, k]) }
}

/// `c_mn = alpha · a_mk · panels_kn + beta · c`.
///
/// # Safety
/// The m × n elements of `c` are writable and nobody else reads or writes them meanwhile.
pub(crate) unsafe fn multiply(c: Target, a: Matrix<'_>, panels: &[f32], [m, n, k]: [usize; 3]) {
    assert!(a.holds(m, k) && panels.len() == packed_len(k, n), "multiply: {m} x {n} x {k}");
    let kernel = kernel();
    for p in 0..n.div_ceil(COLUMNS) {
        let panel = &panels[p * COLUMNS * k..][..COLUMNS * k];
        let width = COLUMNS.min(n - p * COLUMNS);
        for i in (0..m).step_by(ROWS) {
            let rows = ROWS.min(m - i);
            let mut tile = [[0.0; COLUMNS]; ROWS];
            // A short tile repeats its last row, and drops the result.
            let starts = std::array::from_fn(|r| (i + r.min(rows - 1)) * a.row);
            // SAFETY: `a` was found to hold m × k elements and the panel 16 × k; the kernel is one this processor has.
            unsafe { kernel(&mut tile, a, starts, panel, k) };
            // SAFETY: rows i..i + rows and columns from p · 16 on, `width` of them, lie inside the target.
            unsafe { store(&c, &tile, [i, rows], [p * COLUMNS, width]) };
        }
    }
}

/// # Safety
/// The rows and columns, each given as start and count, lie inside the target.
#[inline(always)]
unsafe fn store(c: &Target, tile: &Tile, [i, rows]: [usize; 2], [j, width]: [usize; 2]) {
    for (r, from) in tile.iter().enumerate().take(rows) {
        // SAFETY: inside the target by the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(c.data.add((i + r) * c.stride + j), width) };
        match <&mut [f32; COLUMNS]>::try_from(&mut *to) {
            Ok(whole) => store_row(whole, from, [c.alpha, c.beta]),
            Err(_) => store_row(to, &from[..width], [c.alpha, c.beta]),
        }
    }
}

/// `to = alpha · from + beta · to`; with `beta == 0` the old content is not read.
#[inline(always)]
pub(crate) fn store_row<R: AsMut<[f32]> + ?Sized>(to: &mut R, from: &[f32], [alpha, beta]: [f32; 2]) {
    let pairs = to.as_mut().iter_mut().zip(from);
    if beta == 0.0 {
        pairs.for_each(|(to, from)| *to = alpha * from);
    } else {
        pairs.for_each(|(to, from)| *to = alpha * from + beta * *to);
    }
}

/// Adds `a`'s rows at `starts` times a panel to a tile.
///
/// Safety: each start plus `(k - 1) · column` is inside `a`, the panel has k rows, the processor has the instructions.
type Kernel = unsafe fn(&mut Tile, Matrix<'_>, [usize; ROWS], &[f32], usize);

fn kernel() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        return kernel_avx2;
    }
    kernel_portable
}

/// Plain loops, not fused.
///
/// # Safety
/// None beyond that of [`Kernel`]: it checks its bounds.
unsafe fn kernel_portable(tile: &mut Tile, a: Matrix<'_>, starts: [usize; ROWS], panel: &[f32], k: usize) {
    for (p, b) in panel.chunks_exact(COLUMNS).enumerate().take(k) {
        for (row, start) in tile.iter_mut().zip(starts) {
            let a = a.data[start + p * a.column];
            row.iter_mut().zip(b).for_each(|(c, b)| *c += a * b);
        }
    }
}

/// Twelve accumulators, two vectors of `b`, one broadcast of `a`: 15 of 16 registers, two loads of `b` and six of `a`
/// for twelve fused multiply-adds.
///
/// # Safety
/// See [`Kernel`]; the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn kernel_avx2(tile: &mut Tile, a: Matrix<'_>, starts: [usize; ROWS], panel: &[f32], k: usize) {
    use std::arch::x86_64::{
        _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };
    let base = a.data.as_ptr();
    // SAFETY: starts are inside `a`.
    let rows = starts.map(|start| unsafe { base.add(start) });
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
    let mut at = 0;
    for p in 0..k {
        // SAFETY: the panel has k rows of 16.
        let b = unsafe { [0, 8].map(|half| _mm256_loadu_ps(panel.as_ptr().add(p * COLUMNS + half))) };
        for r in 0..ROWS {
            // SAFETY: `at` is p · column, which stays inside `a` for every row.
            let a = unsafe { _mm256_broadcast_ss(&*rows[r].add(at)) };
            sums[r][0] = _mm256_fmadd_ps(a, b[0], sums[r][0]);
            sums[r][1] = _mm256_fmadd_ps(a, b[1], sums[r][1]);
        }
        at += a.column;
    }
    for (to, sums) in tile.iter_mut().zip(sums) {
        // SAFETY: a row of the tile has 16 elements.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), sums[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), sums[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uniform;

    /// Every shape of edge, transposed or not, against plain loops.
    #[test]
    fn block_products_agree_with_plain_loops() {
        for (m, n, k) in [(1, 1, 1), (6, 16, 8), (7, 17, 5), (13, 31, 33), (5, 48, 0)] {
            let (a, b) = (uniform(m * k, 1), uniform(k * n, 2));
            for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
                let flip = |x, t: bool, rows, columns| {
                    if t { Matrix::rows(x, rows).transposed() } else { Matrix::rows(x, columns) }
                };
                let (a, b) = (flip(&a, ta, m, k), flip(&b, tb, k, n));
                let mut panels = vec![f32::NAN; packed_len(k, n)];
                pack(&mut panels, b, k, n);
                let mut c = vec![1.0; m * n];
                multiply_into(&mut c, n, a, &panels, [m, n, k], [2.0, 0.5]);
                for (at, c) in c.iter().enumerate() {
                    let (i, j) = (at / n, at % n);
                    let term = |p| a.data[i * a.row + p * a.column] * b.data[p * b.row + j * b.column];
                    let wanted = 0.5 + 2.0 * (0..k).map(term).sum::<f32>();
                    assert!((c - wanted).abs() < 1e-5, "{m} x {n} x {k} {ta} {tb} at {i}, {j}: {c} {wanted}");
                }
            }
        }
    }
}
