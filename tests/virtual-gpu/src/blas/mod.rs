//! libcublas, for column-major products, and in `light` libcublasLt.

#![allow(
    unsafe_op_in_unsafe_fn,
    non_snake_case,
    reason = "C entry points: callers vouch for pointers as cuBLAS demands"
)]

mod light;

use crate::clock;
use crate::driver;
use crate::product::{Activation, Number, Operand, Product, Rounding};
use crate::state::{Registry, current, gpu, lock};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock};

/// A `cublasStatus_t` where it fails.
type Blas<T> = Result<T, u32>;

const NOT_INITIALIZED: u32 = 1;
const INVALID_VALUE: u32 = 7;
const EXECUTION_FAILED: u32 = 13;
const NOT_SUPPORTED: u32 = 15;

fn status(body: impl FnOnce() -> Blas<()>) -> u32 {
    body().err().unwrap_or(0)
}

fn dimension(value: c_int) -> Blas<usize> {
    usize::try_from(value).map_err(|_| INVALID_VALUE)
}

/// Checks a product and queues it.
fn submit(stream: usize, product: Product) -> Blas<()> {
    let stream = driver::stream(stream).map_err(|_| EXECUTION_FAILED)?;
    product.check().map_err(|_| EXECUTION_FAILED)?;
    let device = &gpu().devices[stream.device];
    let cost = clock::product(device, product.operations(), product.bytes(), product.precision());
    let reach = device.check_reach(&[product.a.address, product.b.address, product.d.address], "a product");
    stream.submit(cost, move |device| match reach {
        Ok(()) => device.busy_while(|| product.run()),
        Err(error) => device.fail(error),
    });
    Ok(())
}

/// What a compute type means for inputs; `NOT_SUPPORTED` for what no kernel exists for.
fn rounding_of(compute: u32, [a, b, c]: [Number; 3]) -> Blas<Rounding> {
    let single = [a, b, c] == [Number::F32; 3];
    let half = a == b && matches!(a, Number::F16 | Number::Bf16) && (c == a || c == Number::F32);
    match compute {
        68 | 69 if single || half => Ok(Rounding::Exact),
        74 if single => Ok(Rounding::F16),
        75 if single => Ok(Rounding::Bf16),
        77 if single => Ok(Rounding::Tf32),
        70 | 71 if [a, b, c] == [Number::F64; 3] => Ok(Rounding::Exact),
        _ => Err(NOT_SUPPORTED),
    }
}

unsafe fn scalar(pointer: *const c_void, double: bool) -> Blas<f64> {
    if pointer.is_null() {
        return Err(INVALID_VALUE);
    }
    Ok(if double { *pointer.cast::<f64>() } else { f64::from(*pointer.cast::<f32>()) })
}

// ---- cuBLAS: column-major ----

#[derive(Default)]
struct Handle {
    stream: usize,
    math: u32,
}

fn handles() -> &'static Registry<Mutex<Handle>> {
    static HANDLES: OnceLock<Registry<Mutex<Handle>>> = OnceLock::new();
    HANDLES.get_or_init(|| Registry::new(0xB000_0000))
}

fn handle(handle: usize) -> Blas<Arc<Mutex<Handle>>> {
    handles().get(handle).map_err(|_| NOT_INITIALIZED)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasCreate_v2(out: *mut usize) -> u32 {
    status(|| {
        let device = current().map_err(|_| NOT_INITIALIZED)?;
        gpu().check_collectives(device.id, "cublasCreate").map_err(|_| NOT_INITIALIZED)?;
        *out = handles().insert(Arc::default());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasDestroy_v2(handle: usize) -> u32 {
    status(|| handles().remove(handle).map(|_| ()).map_err(|_| NOT_INITIALIZED))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetVersion_v2(_handle: usize, version: *mut c_int) -> u32 {
    *version = 120_804;
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetStream_v2(blas: usize, stream: usize) -> u32 {
    status(|| {
        lock(&*handle(blas)?).stream = stream;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetMathMode(blas: usize, mode: u32) -> u32 {
    status(|| {
        lock(&*handle(blas)?).math = mode;
        Ok(())
    })
}

/// Scalars are read from the host only.
#[unsafe(no_mangle)]
extern "C" fn cublasSetPointerMode_v2(blas: usize, mode: u32) -> u32 {
    status(|| handle(blas).and(if mode == 0 { Ok(()) } else { Err(NOT_SUPPORTED) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetPointerMode_v2(blas: usize, mode: *mut u32) -> u32 {
    status(|| {
        handle(blas)?;
        *mode = 0;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetWorkspace_v2(blas: usize, workspace: usize, bytes: usize) -> u32 {
    status(|| {
        handle(blas)?;
        gpu().memory.check(workspace, bytes, "workspace").map_err(|_| INVALID_VALUE)
    })
}

/// One operand of a column-major call.
struct Given {
    address: usize,
    number: c_int,
    pitch: c_int,
    stride: i64,
}

impl Given {
    /// As rows × columns of the product, after the transpose that the call asks for.
    fn operand(&self, transpose: u32, rows: usize, columns: usize) -> Blas<Operand> {
        let number = Number::of(self.number).ok_or(NOT_SUPPORTED)?;
        let pitch = dimension(self.pitch)?;
        let stored_rows = if transpose == 0 { rows } else { columns };
        if transpose > 2 || pitch < stored_rows.max(1) || self.stride < 0 {
            return Err(INVALID_VALUE);
        }
        let stored = Operand {
            address: self.address,
            number,
            row_stride: 1,
            column_stride: pitch,
            batch_stride: self.stride as usize,
        };
        Ok(if transpose == 0 { stored } else { stored.transposed() })
    }
}

/// The numbers of a column-major call.
struct Call {
    transposes: [u32; 2],
    sizes: [c_int; 3],
    scalars: [*const c_void; 2],
    operands: [Given; 3],
    batches: c_int,
    compute: u32,
}

unsafe fn multiply(blas: usize, call: Call) -> Blas<()> {
    let (stream, math) = {
        let handle = handle(blas)?;
        let handle = lock(&handle);
        (handle.stream, handle.math)
    };
    let [m, n, k] = [dimension(call.sizes[0])?, dimension(call.sizes[1])?, dimension(call.sizes[2])?];
    let [a, b, c] = &call.operands;
    let a = a.operand(call.transposes[0], m, k)?;
    let b = b.operand(call.transposes[1], k, n)?;
    let c = c.operand(0, m, n)?;
    let mut rounding = rounding_of(call.compute, [a.number, b.number, c.number])?;
    if math & 3 == 3 && call.compute == 68 && a.number == Number::F32 {
        rounding = Rounding::Tf32;
    }
    let double = c.number == Number::F64;
    submit(
        stream,
        Product {
            m,
            n,
            k,
            batches: dimension(call.batches)?,
            alpha: scalar(call.scalars[0], double)?,
            beta: scalar(call.scalars[1], double)?,
            a,
            b,
            c,
            d: c,
            rounding,
            activation: Activation::None,
            bias: None,
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGemmStridedBatchedEx(
    blas: usize,
    transpose_a: u32,
    transpose_b: u32,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: usize,
    type_a: c_int,
    pitch_a: c_int,
    stride_a: i64,
    b: usize,
    type_b: c_int,
    pitch_b: c_int,
    stride_b: i64,
    beta: *const c_void,
    c: usize,
    type_c: c_int,
    pitch_c: c_int,
    stride_c: i64,
    batches: c_int,
    compute: u32,
    _algorithm: c_int,
) -> u32 {
    let given = |address, number, pitch, stride| Given { address, number, pitch, stride };
    let operands =
        [given(a, type_a, pitch_a, stride_a), given(b, type_b, pitch_b, stride_b), given(c, type_c, pitch_c, stride_c)];
    let call = Call {
        transposes: [transpose_a, transpose_b],
        sizes: [m, n, k],
        scalars: [alpha, beta],
        operands,
        batches,
        compute,
    };
    status(|| multiply(blas, call))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGemmEx(
    blas: usize,
    transpose_a: u32,
    transpose_b: u32,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: usize,
    type_a: c_int,
    pitch_a: c_int,
    b: usize,
    type_b: c_int,
    pitch_b: c_int,
    beta: *const c_void,
    c: usize,
    type_c: c_int,
    pitch_c: c_int,
    compute: u32,
    _algorithm: c_int,
) -> u32 {
    let given = |address, number, pitch| Given { address, number, pitch, stride: 0 };
    let call = Call {
        transposes: [transpose_a, transpose_b],
        sizes: [m, n, k],
        scalars: [alpha, beta],
        operands: [given(a, type_a, pitch_a), given(b, type_b, pitch_b), given(c, type_c, pitch_c)],
        batches: 1,
        compute,
    };
    status(|| multiply(blas, call))
}

const COMPUTE_32F: u32 = 68;
const COMPUTE_64F: u32 = 70;

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasSgemm_v2(
    blas: usize,
    transpose_a: u32,
    transpose_b: u32,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    a: usize,
    pitch_a: c_int,
    b: usize,
    pitch_b: c_int,
    beta: *const f32,
    c: usize,
    pitch_c: c_int,
) -> u32 {
    let given = |address, pitch| Given { address, number: 0, pitch, stride: 0 };
    let call = Call {
        transposes: [transpose_a, transpose_b],
        sizes: [m, n, k],
        scalars: [alpha.cast(), beta.cast()],
        operands: [given(a, pitch_a), given(b, pitch_b), given(c, pitch_c)],
        batches: 1,
        compute: COMPUTE_32F,
    };
    status(|| multiply(blas, call))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasDgemm_v2(
    blas: usize,
    transpose_a: u32,
    transpose_b: u32,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f64,
    a: usize,
    pitch_a: c_int,
    b: usize,
    pitch_b: c_int,
    beta: *const f64,
    c: usize,
    pitch_c: c_int,
) -> u32 {
    let given = |address, pitch| Given { address, number: 1, pitch, stride: 0 };
    let call = Call {
        transposes: [transpose_a, transpose_b],
        sizes: [m, n, k],
        scalars: [alpha.cast(), beta.cast()],
        operands: [given(a, pitch_a), given(b, pitch_b), given(c, pitch_c)],
        batches: 1,
        compute: COMPUTE_64F,
    };
    status(|| multiply(blas, call))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasSgemmStridedBatched(
    blas: usize,
    transpose_a: u32,
    transpose_b: u32,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    a: usize,
    pitch_a: c_int,
    stride_a: i64,
    b: usize,
    pitch_b: c_int,
    stride_b: i64,
    beta: *const f32,
    c: usize,
    pitch_c: c_int,
    stride_c: i64,
    batches: c_int,
) -> u32 {
    let given = |address, pitch, stride| Given { address, number: 0, pitch, stride };
    let call = Call {
        transposes: [transpose_a, transpose_b],
        sizes: [m, n, k],
        scalars: [alpha.cast(), beta.cast()],
        operands: [given(a, pitch_a, stride_a), given(b, pitch_b, stride_b), given(c, pitch_c, stride_c)],
        batches,
        compute: COMPUTE_32F,
    };
    status(|| multiply(blas, call))
}

/// Name of a `cublasStatus_t`.
fn name_of(error: u32) -> *const c_char {
    let name = match error {
        0 => c"CUBLAS_STATUS_SUCCESS",
        NOT_INITIALIZED => c"CUBLAS_STATUS_NOT_INITIALIZED",
        INVALID_VALUE => c"CUBLAS_STATUS_INVALID_VALUE",
        EXECUTION_FAILED => c"CUBLAS_STATUS_EXECUTION_FAILED",
        NOT_SUPPORTED => c"CUBLAS_STATUS_NOT_SUPPORTED",
        _ => c"CUBLAS_STATUS_INTERNAL_ERROR",
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusString(error: u32) -> *const c_char {
    name_of(error)
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusName(error: u32) -> *const c_char {
    name_of(error)
}
