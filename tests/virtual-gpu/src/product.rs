//! Matrix products on strided operands: packed into panels as f32, then a blocked loop that adds in the order of the inner
//! index, so that a result depends on nothing but its inputs.

use crate::clock::Precision;
use crate::state::{Cu, gpu};
use half::{bf16, f16};

/// Number types, with `cudaDataType`'s values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    F32,
    F64,
    F16,
    Bf16,
}

impl Number {
    pub(crate) fn of(value: i32) -> Option<Number> {
        match value {
            0 => Some(Number::F32),
            1 => Some(Number::F64),
            2 => Some(Number::F16),
            14 => Some(Number::Bf16),
            _ => None,
        }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Number::F32 => 4,
            Number::F64 => 8,
            Number::F16 | Number::Bf16 => 2,
        }
    }
}

/// How inputs are rounded before they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Exact,
    Tf32,
    Bf16,
    F16,
}

impl Rounding {
    fn apply(self, value: f32) -> f32 {
        match self {
            Rounding::Exact => value,
            // Ten bits of mantissa, halves away from zero.
            Rounding::Tf32 if value.is_finite() => f32::from_bits((value.to_bits() + 0x1000) & !0x1FFF),
            Rounding::Tf32 => value,
            Rounding::Bf16 => bf16::from_f32(value).to_f32(),
            Rounding::F16 => f16::from_f32(value).to_f32(),
        }
    }
}

/// A matrix in memory; strides count elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) address: usize,
    pub(crate) number: Number,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
    pub(crate) batch_stride: usize,
}

impl Operand {
    pub(crate) fn transposed(self) -> Self {
        Operand { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    fn at(&self, batch: usize, row: usize, column: usize) -> usize {
        let element = batch * self.batch_stride + row * self.row_stride + column * self.column_stride;
        self.address + element * self.number.bytes()
    }

    /// Fails where the matrices leave their buffer.
    fn check(&self, batches: usize, rows: usize, columns: usize, what: &str) -> Cu<()> {
        if batches == 0 || rows == 0 || columns == 0 {
            return Ok(());
        }
        let end = self.at(batches - 1, rows - 1, columns - 1) + self.number.bytes();
        gpu().memory.check(self.address, end - self.address, what)
    }
}

fn load(number: Number, address: usize) -> f64 {
    // SAFETY: the operand's whole extent was checked when the product was issued.
    unsafe {
        match number {
            Number::F32 => f64::from((address as *const f32).read_unaligned()),
            Number::F64 => (address as *const f64).read_unaligned(),
            Number::F16 => (address as *const f16).read_unaligned().to_f64(),
            Number::Bf16 => (address as *const bf16).read_unaligned().to_f64(),
        }
    }
}

fn store(number: Number, address: usize, value: f64) {
    // SAFETY: as in `load`.
    unsafe {
        match number {
            Number::F32 => (address as *mut f32).write_unaligned(value as f32),
            Number::F64 => (address as *mut f64).write_unaligned(value),
            Number::F16 => (address as *mut f16).write_unaligned(f16::from_f32(value as f32)),
            Number::Bf16 => (address as *mut bf16).write_unaligned(bf16::from_f32(value as f32)),
        }
    }
}

/// What happens to a sum before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    None,
    Relu,
    Gelu,
}

impl Activation {
    fn apply(self, x: f32) -> f32 {
        match self {
            Activation::None => x,
            Activation::Relu => x.max(0.0),
            Activation::Gelu => 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh()),
        }
    }
}

/// One number a row, added before the activation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bias {
    pub(crate) address: usize,
    pub(crate) number: Number,
    /// Elements from one batch's to the next one's; 0: all batches share one.
    pub(crate) batch_stride: usize,
}

impl Bias {
    fn at(&self, batch: usize, row: usize) -> f32 {
        load(self.number, self.address + (batch * self.batch_stride + row) * self.number.bytes()) as f32
    }
}

/// `d = activation(alpha · a · b + beta · c + bias)`, with `a` m × k, `b` k × n, and one bias a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) batches: usize,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) a: Operand,
    pub(crate) b: Operand,
    pub(crate) c: Operand,
    pub(crate) d: Operand,
    pub(crate) rounding: Rounding,
    pub(crate) activation: Activation,
    pub(crate) bias: Option<Bias>,
}

impl Product {
    /// Fails where an operand leaves its buffer.
    pub(crate) fn check(&self) -> Cu<()> {
        self.a.check(self.batches, self.m, self.k, "matrix a")?;
        self.b.check(self.batches, self.k, self.n, "matrix b")?;
        self.d.check(self.batches, self.m, self.n, "matrix d")?;
        if self.beta != 0.0 {
            self.c.check(self.batches, self.m, self.n, "matrix c")?;
        }
        match self.bias {
            Some(bias) => {
                let rows = self.batches.saturating_sub(1) * bias.batch_stride + self.m;
                gpu().memory.check(bias.address, rows * bias.number.bytes(), "bias")
            }
            None => Ok(()),
        }
    }

    pub(crate) fn operations(&self) -> f64 {
        2.0 * (self.batches * self.m) as f64 * self.n as f64 * self.k as f64
    }

    pub(crate) fn bytes(&self) -> f64 {
        let sizes =
            [(self.m * self.k, self.a.number), (self.k * self.n, self.b.number), (self.m * self.n, self.d.number)];
        sizes.iter().map(|(count, number)| (self.batches * count * number.bytes()) as f64).sum()
    }

    pub(crate) fn precision(&self) -> Precision {
        match (self.a.number, self.rounding) {
            (Number::F64, _) => Precision::Double,
            (Number::F32, Rounding::Exact) => Precision::Single,
            (Number::F32, Rounding::Tf32) => Precision::Tf32,
            _ => Precision::Half,
        }
    }

    pub(crate) fn run(&self) {
        for batch in 0..self.batches {
            if self.a.number == Number::F64 {
                self.run_double(batch);
            } else {
                self.run_single(batch);
            }
        }
    }

    fn run_double(&self, batch: usize) {
        for row in 0..self.m {
            for column in 0..self.n {
                let term =
                    |k| load(Number::F64, self.a.at(batch, row, k)) * load(Number::F64, self.b.at(batch, k, column));
                let sum: f64 = (0..self.k).map(term).sum();
                let before = if self.beta == 0.0 { 0.0 } else { load(self.c.number, self.c.at(batch, row, column)) };
                store(self.d.number, self.d.at(batch, row, column), self.alpha * sum + self.beta * before);
            }
        }
    }

    fn run_single(&self, batch: usize) {
        let a = self.pack::<ROWS>(self.m, |row, k| (self.a.number, self.a.at(batch, row, k)));
        let b = self.pack::<COLUMNS>(self.n, |column, k| (self.b.number, self.b.at(batch, k, column)));
        for (i, rows) in (0..self.m).step_by(ROWS).enumerate() {
            let panel_a = &a[i * ROWS * self.k..(i + 1) * ROWS * self.k];
            for (j, columns) in (0..self.n).step_by(COLUMNS).enumerate() {
                let panel_b = &b[j * COLUMNS * self.k..(j + 1) * COLUMNS * self.k];
                self.store_tile(batch, rows, columns, &tile(panel_a, panel_b));
            }
        }
    }

    /// Lays `count` lines of length k out in panels of `W` lines, inner index outermost; missing lines are zero.
    fn pack<const W: usize>(&self, count: usize, at: impl Fn(usize, usize) -> (Number, usize)) -> Vec<f32> {
        let mut packed = vec![0f32; count.div_ceil(W) * W * self.k];
        for line in 0..count {
            let start = line / W * W * self.k + line % W;
            for k in 0..self.k {
                let (number, address) = at(line, k);
                packed[start + k * W] = self.rounding.apply(load(number, address) as f32);
            }
        }
        packed
    }

    fn store_tile(&self, batch: usize, row: usize, column: usize, sums: &[[f32; ROWS]; COLUMNS]) {
        let (alpha, beta) = (self.alpha as f32, self.beta as f32);
        for (j, sums) in sums.iter().enumerate().take(self.n - column) {
            for (i, sum) in sums.iter().enumerate().take(self.m - row) {
                let (row, column) = (row + i, column + j);
                let mut value = alpha * sum;
                if beta != 0.0 {
                    value += beta * load(self.c.number, self.c.at(batch, row, column)) as f32;
                }
                if let Some(bias) = self.bias {
                    value += bias.at(batch, row);
                }
                let value = self.activation.apply(value);
                store(self.d.number, self.d.at(batch, row, column), f64::from(value));
            }
        }
    }
}

/// Lines of the left matrix in a tile: two vectors of eight.
const ROWS: usize = 16;
/// Columns of the right matrix in a tile.
const COLUMNS: usize = 4;

/// Sums of one tile.
fn tile(a: &[f32], b: &[f32]) -> [[f32; ROWS]; COLUMNS] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { tile_avx2(a, b) };
    }
    tile_of(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn tile_avx2(a: &[f32], b: &[f32]) -> [[f32; ROWS]; COLUMNS] {
    tile_of(a, b)
}

/// The loop itself; multiplies and adds are rounded one by one, so that both builds of it agree.
#[inline(always)]
fn tile_of(a: &[f32], b: &[f32]) -> [[f32; ROWS]; COLUMNS] {
    let mut sums = [[0f32; ROWS]; COLUMNS];
    let (a, _) = a.as_chunks::<ROWS>();
    let (b, _) = b.as_chunks::<COLUMNS>();
    for (a, b) in a.iter().zip(b) {
        for (sums, b) in sums.iter_mut().zip(b) {
            for (sum, a) in sums.iter_mut().zip(a) {
                *sum += a * b;
            }
        }
    }
    sums
}
