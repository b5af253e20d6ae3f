//! libcublasLt: products of layouts in either order, with transposes, batches, biases and activations.

use super::{Blas, INVALID_VALUE, NOT_INITIALIZED, NOT_SUPPORTED, rounding_of, scalar, status, submit};
use crate::product::{Activation, Bias, Number, Operand, Product};
use crate::state::{Registry, current, gpu, lock};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock};

/// A matrix layout.
#[derive(Clone, Debug)]
struct Layout {
    number: c_int,
    order: c_int,
    rows: u64,
    columns: u64,
    pitch: i64,
    batches: c_int,
    stride: i64,
}

/// A description of a product.
#[derive(Clone, Debug)]
struct Description {
    compute: u32,
    scale: c_int,
    transposes: [c_int; 2],
    epilogue: u32,
    bias: usize,
    bias_number: Option<c_int>,
    bias_stride: i64,
}

fn layouts() -> &'static Registry<Mutex<Layout>> {
    static LAYOUTS: OnceLock<Registry<Mutex<Layout>>> = OnceLock::new();
    LAYOUTS.get_or_init(|| Registry::new(0xA000_0000))
}

fn descriptions() -> &'static Registry<Mutex<Description>> {
    static DESCRIPTIONS: OnceLock<Registry<Mutex<Description>>> = OnceLock::new();
    DESCRIPTIONS.get_or_init(|| Registry::new(0xD000_0000))
}

/// Workspace limits, of which the double needs none.
fn preferences() -> &'static Registry<()> {
    static PREFERENCES: OnceLock<Registry<()>> = OnceLock::new();
    PREFERENCES.get_or_init(|| Registry::new(0x8000_0000))
}

fn light_handles() -> &'static Registry<()> {
    static HANDLES: OnceLock<Registry<()>> = OnceLock::new();
    HANDLES.get_or_init(|| Registry::new(0x7000_0000))
}

fn missing(_: u32) -> u32 {
    INVALID_VALUE
}

/// Reads an attribute's value; its size must be right.
unsafe fn read<T: Copy>(value: *const c_void, bytes: usize) -> Blas<T> {
    if value.is_null() || bytes != size_of::<T>() {
        return Err(INVALID_VALUE);
    }
    Ok(value.cast::<T>().read_unaligned())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(out: *mut usize) -> u32 {
    status(|| {
        let device = current().map_err(|_| NOT_INITIALIZED)?;
        gpu().check_collectives(device.id, "cublasLtCreate").map_err(|_| NOT_INITIALIZED)?;
        *out = light_handles().insert(Arc::new(()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(handle: usize) -> u32 {
    status(|| light_handles().remove(handle).map(|_| ()).map_err(|_| NOT_INITIALIZED))
}

/// There is nothing to log.
#[unsafe(no_mangle)]
extern "C" fn cublasLtLoggerOpenFile(_path: *const c_char) -> u32 {
    0
}

/// There is nothing to log.
#[unsafe(no_mangle)]
extern "C" fn cublasLtLoggerSetLevel(_level: c_int) -> u32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    120_804
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    out: *mut usize,
    number: c_int,
    rows: u64,
    columns: u64,
    pitch: i64,
) -> u32 {
    let layout = Layout { number, order: 0, rows, columns, pitch, batches: 1, stride: 0 };
    *out = layouts().insert(Arc::new(Mutex::new(layout)));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutDestroy(layout: usize) -> u32 {
    status(|| layouts().remove(layout).map(|_| ()).map_err(missing))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: usize,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> u32 {
    status(|| {
        let layout = layouts().get(layout).map_err(missing)?;
        let mut layout = lock(&layout);
        match attribute {
            0 => layout.number = read(value, bytes)?,
            1 => layout.order = read(value, bytes)?,
            2 => layout.rows = read(value, bytes)?,
            3 => layout.columns = read(value, bytes)?,
            4 => layout.pitch = read(value, bytes)?,
            5 => layout.batches = read(value, bytes)?,
            6 => layout.stride = read(value, bytes)?,
            _ => return Err(NOT_SUPPORTED),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(out: *mut usize, compute: u32, scale: c_int) -> u32 {
    let description =
        Description { compute, scale, transposes: [0; 2], epilogue: 1, bias: 0, bias_number: None, bias_stride: 0 };
    *out = descriptions().insert(Arc::new(Mutex::new(description)));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescDestroy(description: usize) -> u32 {
    status(|| descriptions().remove(description).map(|_| ()).map_err(missing))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    description: usize,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> u32 {
    status(|| {
        let description = descriptions().get(description).map_err(missing)?;
        let mut description = lock(&description);
        match attribute {
            0 => description.compute = read(value, bytes)?,
            1 => description.scale = read(value, bytes)?,
            2 if read::<c_int>(value, bytes)? == 0 => {}
            3 => description.transposes[0] = read(value, bytes)?,
            4 => description.transposes[1] = read(value, bytes)?,
            5 if read::<c_int>(value, bytes)? == 0 => {} // no other transpose of c exists
            7 => description.epilogue = read(value, bytes)?,
            8 => description.bias = read(value, bytes)?,
            10 => description.bias_stride = read(value, bytes)?,
            15 => {} // how many multiprocessors to use
            26 => description.bias_number = Some(read(value, bytes)?),
            _ => return Err(NOT_SUPPORTED),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(out: *mut usize) -> u32 {
    *out = preferences().insert(Arc::new(()));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceDestroy(preference: usize) -> u32 {
    status(|| preferences().remove(preference).map(|_| ()).map_err(missing))
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: usize,
    attribute: c_int,
    value: *const c_void,
    _bytes: usize,
) -> u32 {
    let known = (0..=15).contains(&attribute) && !value.is_null();
    status(|| preferences().get(preference).map_err(missing).and(if known { Ok(()) } else { Err(INVALID_VALUE) }))
}

impl Layout {
    fn operand(&self, address: usize) -> Blas<Operand> {
        let number = Number::of(self.number).ok_or(NOT_SUPPORTED)?;
        let pitch = u64::try_from(self.pitch).map_err(|_| INVALID_VALUE)?;
        let (line, strides) = match self.order {
            0 => (self.rows, (1, pitch as usize)),
            1 => (self.columns, (pitch as usize, 1)),
            _ => return Err(NOT_SUPPORTED),
        };
        if pitch < line.max(1) || self.stride < 0 || self.batches < 1 {
            return Err(INVALID_VALUE);
        }
        if !address.is_multiple_of(number.bytes()) {
            return Err(NOT_SUPPORTED);
        }
        let (row_stride, column_stride) = strides;
        Ok(Operand { address, number, row_stride, column_stride, batch_stride: self.stride as usize })
    }
}

/// Layouts and description of one product.
struct Shape {
    description: Description,
    a: Layout,
    b: Layout,
    c: Layout,
    d: Layout,
}

impl Shape {
    fn of(description: usize, [a, b, c, d]: [usize; 4]) -> Blas<Shape> {
        let layout = |handle| layouts().get(handle).map(|l| lock(&l).clone()).map_err(missing);
        let description = descriptions().get(description).map(|d| lock(&d).clone()).map_err(missing)?;
        Ok(Shape { description, a: layout(a)?, b: layout(b)?, c: layout(c)?, d: layout(d)? })
    }

    /// The product on given addresses: matrices a, b, c, d.
    fn product(&self, addresses: [usize; 4], alpha: f64, beta: f64) -> Blas<Product> {
        let description = &self.description;
        let side = |layout: &Layout, address, transpose| -> Blas<(Operand, u64, u64)> {
            let operand = layout.operand(address)?;
            match transpose {
                0 => Ok((operand, layout.rows, layout.columns)),
                1 | 2 => Ok((operand.transposed(), layout.columns, layout.rows)),
                _ => Err(INVALID_VALUE),
            }
        };
        let (a, m, k) = side(&self.a, addresses[0], description.transposes[0])?;
        let (b, inner, n) = side(&self.b, addresses[1], description.transposes[1])?;
        let (c, d) = (self.c.operand(addresses[2])?, self.d.operand(addresses[3])?);
        let shapes_agree = inner == k && [&self.c, &self.d].iter().all(|l| (l.rows, l.columns) == (m, n));
        let batches_agree = [&self.b, &self.c, &self.d].iter().all(|l| l.batches == self.a.batches);
        if !shapes_agree || !batches_agree {
            return Err(INVALID_VALUE);
        }
        if c.number != d.number || self.c.order != self.d.order {
            return Err(NOT_SUPPORTED);
        }
        let rounding = rounding_of(description.compute, [a.number, b.number, d.number])?;
        let (activation, bias) = self.epilogue(d.number)?;
        let [m, n, k] = [m as usize, n as usize, k as usize];
        let batches = self.a.batches as usize;
        Ok(Product { m, n, k, batches, alpha, beta, a, b, c, d, rounding, activation, bias })
    }

    fn epilogue(&self, output: Number) -> Blas<(Activation, Option<Bias>)> {
        let (activation, has_bias) = match self.description.epilogue {
            1 => (Activation::None, false),
            2 => (Activation::Relu, false),
            4 => (Activation::None, true),
            6 => (Activation::Relu, true),
            32 => (Activation::Gelu, false),
            36 => (Activation::Gelu, true),
            _ => return Err(NOT_SUPPORTED),
        };
        if !has_bias {
            return Ok((activation, None));
        }
        let number = self.description.bias_number.map_or(Some(output), Number::of).ok_or(NOT_SUPPORTED)?;
        let batch_stride = usize::try_from(self.description.bias_stride).map_err(|_| INVALID_VALUE)?;
        Ok((activation, Some(Bias { address: self.description.bias, number, batch_stride })))
    }

    /// Scalars must be of the type that the compute type goes with.
    fn is_double(&self) -> Blas<bool> {
        match (self.description.compute, self.description.scale) {
            (70 | 71, 1) => Ok(true),
            (70 | 71, _) => Err(NOT_SUPPORTED),
            (_, 0) => Ok(false),
            _ => Err(NOT_SUPPORTED),
        }
    }
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
pub(crate) struct Heuristic {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: u32,
    waves: f32,
    reserved: [c_int; 4],
}

/// Marks an algorithm as this double's.
const ALGORITHM: u64 = 0x7667_7075;

/// Finds one algorithm for what `cublasLtMatmul` supports, none for the rest.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    handle: usize,
    description: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    _preference: usize,
    wanted: c_int,
    results: *mut Heuristic,
    found: *mut c_int,
) -> u32 {
    status(|| {
        light_handles().get(handle).map_err(|_| NOT_INITIALIZED)?;
        if wanted < 1 || results.is_null() || found.is_null() {
            return Err(INVALID_VALUE);
        }
        *found = 0;
        let shape = Shape::of(description, [a, b, c, d])?;
        shape.is_double()?;
        shape.product([0; 4], 1.0, 0.0)?;
        let algorithm = [ALGORITHM, 0, 0, 0, 0, 0, 0, 0];
        *results = Heuristic { algorithm, workspace_bytes: 0, state: 0, waves: 1.0, reserved: [0; 4] };
        *found = 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    handle: usize,
    description: usize,
    alpha: *const c_void,
    a: usize,
    layout_a: usize,
    b: usize,
    layout_b: usize,
    beta: *const c_void,
    c: usize,
    layout_c: usize,
    d: usize,
    layout_d: usize,
    algorithm: *const u64,
    workspace: usize,
    workspace_bytes: usize,
    stream: usize,
) -> u32 {
    status(|| {
        light_handles().get(handle).map_err(|_| NOT_INITIALIZED)?;
        if !algorithm.is_null() && *algorithm != ALGORITHM {
            return Err(INVALID_VALUE);
        }
        if workspace != 0 {
            gpu().memory.check(workspace, workspace_bytes, "workspace").map_err(|_| INVALID_VALUE)?;
        }
        let shape = Shape::of(description, [layout_a, layout_b, layout_c, layout_d])?;
        let double = shape.is_double()?;
        let product = shape.product([a, b, c, d], scalar(alpha, double)?, scalar(beta, double)?)?;
        if product.bias.is_some_and(|bias| bias.address == 0) {
            return Err(INVALID_VALUE);
        }
        submit(stream, product)
    })
}
