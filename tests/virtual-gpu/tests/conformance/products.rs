//! Products: cuBLAS and cuBLASLt against plain loops.

use crate::{Bench, machine};
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, sys::cublasOperation_t};
use cudarc::cublaslt::{result, sys};
use cudarc::driver::{CudaSlice, DevicePtr, DeviceRepr};
use half::bf16;
use std::ffi::c_void;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 11) % 17) as f32 - 8.0).collect()
}

#[test]
fn single_precision_products_are_column_major() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let blas = CudaBlas::new(bench.stream.clone()).unwrap();
    let (m, n, k) = (19usize, 7usize, 33usize);
    let (a, b, c) = (numbers(m * k, 1), numbers(k * n, 2), numbers(m * n, 3));
    for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
        let operation = |t| if t { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N };
        let (da, db) = (bench.stream.clone_htod(&a).unwrap(), bench.stream.clone_htod(&b).unwrap());
        let mut dc = bench.stream.clone_htod(&c).unwrap();
        let config = GemmConfig {
            transa: operation(ta),
            transb: operation(tb),
            m: m as i32,
            n: n as i32,
            k: k as i32,
            alpha: 2f32,
            lda: if ta { k } else { m } as i32,
            ldb: if tb { n } else { k } as i32,
            beta: 0.5,
            ldc: m as i32,
        };
        unsafe { blas.gemm(config, &da, &db, &mut dc) }.unwrap();
        let out = bench.stream.clone_dtoh(&dc).unwrap();
        for (i, value) in out.iter().enumerate() {
            let (row, column) = (i % m, i / m);
            let left = |x: usize| if ta { a[row * k + x] } else { a[x * m + row] };
            let right = |x: usize| if tb { b[x * n + column] } else { b[column * k + x] };
            let sum: f32 = (0..k).map(|x| left(x) * right(x)).sum();
            assert_eq!(*value, 2.0 * sum + 0.5 * c[i], "{ta} {tb} ({row}, {column})");
        }
    }
}

#[test]
fn operands_outside_their_buffers_are_refused() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let blas = CudaBlas::new(bench.stream.clone()).unwrap();
    let (a, b) = (bench.stream.alloc_zeros::<f32>(16).unwrap(), bench.stream.alloc_zeros::<f32>(15).unwrap());
    let mut c = bench.stream.alloc_zeros::<f32>(16).unwrap();
    let (n, operation) = (4, cublasOperation_t::CUBLAS_OP_N);
    let config = GemmConfig {
        transa: operation,
        transb: operation,
        m: n,
        n,
        k: n,
        alpha: 1f32,
        lda: n,
        ldb: n,
        beta: 0.0,
        ldc: n,
    };
    assert!(unsafe { blas.gemm(config, &a, &b, &mut c) }.is_err());
    assert!(control.messages()[0].contains("matrix b"));
}

/// A row-major product through cuBLASLt.
struct Light<'a> {
    bench: &'a Bench,
    compute: sys::cublasComputeType_t,
    row_major: bool,
    transposes: [bool; 2],
    sizes: [usize; 3],
    batches: usize,
    scalars: [f32; 2],
    bias: Option<u64>,
    /// `cublasLtEpilogue_t` without its bit for a bias.
    activation: u32,
}

const F32: sys::cudaDataType = sys::cudaDataType::CUDA_R_32F;
const BF16: sys::cudaDataType = sys::cudaDataType::CUDA_R_16BF;

impl Light<'_> {
    fn layout(&self, number: sys::cudaDataType, rows: usize, columns: usize) -> sys::cublasLtMatrixLayout_t {
        use sys::cublasLtMatrixLayoutAttribute_t::*;
        let pitch = if self.row_major { columns } else { rows };
        let layout = result::create_matrix_layout(number, rows as u64, columns as u64, pitch as i64).unwrap();
        let set = |attribute, value: *const c_void, bytes| unsafe {
            result::set_matrix_layout_attribute(layout, attribute, value, bytes).unwrap();
        };
        let (order, batches, stride) = (i32::from(self.row_major), self.batches as i32, (rows * columns) as i64);
        set(CUBLASLT_MATRIX_LAYOUT_ORDER, (&raw const order).cast(), 4);
        set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const batches).cast(), 4);
        set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (&raw const stride).cast(), 8);
        layout
    }

    fn description(&self) -> sys::cublasLtMatmulDesc_t {
        use sys::cublasLtMatmulDescAttributes_t::*;
        let description = result::create_matmul_desc(self.compute, F32).unwrap();
        let set = |attribute, value: *const c_void, bytes| unsafe {
            result::set_matmul_desc_attribute(description, attribute, value, bytes).unwrap();
        };
        let [a, b] = self.transposes.map(i32::from);
        set(CUBLASLT_MATMUL_DESC_TRANSA, (&raw const a).cast(), 4);
        set(CUBLASLT_MATMUL_DESC_TRANSB, (&raw const b).cast(), 4);
        let epilogue = match (self.activation, self.bias) {
            (0, None) => 1,
            (activation, None) => activation,
            (activation, Some(_)) => activation | 4,
        };
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const epilogue).cast(), 4);
        if let Some(bias) = self.bias {
            set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const bias).cast(), 8);
        }
        description
    }

    /// Runs it; the status of the heuristic where nothing supports it.
    fn run<T: DeviceRepr, U: DeviceRepr>(
        &self,
        (a, b): (&CudaSlice<T>, &CudaSlice<T>),
        d: &mut CudaSlice<U>,
    ) -> Result<(), sys::cublasStatus_t> {
        let [m, n, k] = self.sizes;
        let number = |bytes| if bytes == 4 { F32 } else { BF16 };
        let (input, output) = (number(size_of::<T>()), number(size_of::<U>()));
        let swap = |t, rows, columns| if t { (columns, rows) } else { (rows, columns) };
        let (ra, ca) = swap(self.transposes[0], m, k);
        let (rb, cb) = swap(self.transposes[1], k, n);
        let layouts = [self.layout(input, ra, ca), self.layout(input, rb, cb), self.layout(output, m, n)];
        let description = self.description();
        let stream = &self.bench.stream;
        let handle = result::create_handle().unwrap();
        let preference = result::create_matmul_pref().unwrap();
        let outcome = unsafe {
            let found = result::get_matmul_algo_heuristic(
                handle,
                description,
                layouts[0],
                layouts[1],
                layouts[2],
                layouts[2],
                preference,
            );
            found.map_err(|e| e.0).and_then(|found| {
                result::matmul(
                    handle,
                    description,
                    (&raw const self.scalars[0]).cast(),
                    (&raw const self.scalars[1]).cast(),
                    a.device_ptr(stream).0 as *const c_void,
                    layouts[0],
                    b.device_ptr(stream).0 as *const c_void,
                    layouts[1],
                    d.device_ptr(stream).0 as *const c_void,
                    layouts[2],
                    d.device_ptr(stream).0 as *mut c_void,
                    layouts[2],
                    &found.algo,
                    std::ptr::null_mut(),
                    0,
                    stream.cu_stream().cast(),
                )
                .map_err(|e| e.0)
            })
        };
        unsafe {
            layouts.into_iter().for_each(|l| result::destroy_matrix_layout(l).unwrap());
            result::destroy_matmul_desc(description).unwrap();
            result::destroy_matmul_pref(preference).unwrap();
            result::destroy_handle(handle).unwrap();
        }
        outcome
    }
}

/// The product in plain loops, of matrices that are stored as `light` says.
fn expected(light: &Light, a: &[f32], b: &[f32], c: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let [m, n, k] = light.sizes;
    let at = |data: &[f32], batch: usize, rows: usize, columns: usize, row: usize, column: usize| {
        let inner = if light.row_major { row * columns + column } else { column * rows + row };
        data[batch * rows * columns + inner]
    };
    let mut out = c.to_vec();
    for batch in 0..light.batches {
        for (row, column) in (0..m).flat_map(|r| (0..n).map(move |c| (r, c))) {
            let [ta, tb] = light.transposes;
            let left = |x| if ta { at(a, batch, k, m, x, row) } else { at(a, batch, m, k, row, x) };
            let right = |x| if tb { at(b, batch, n, k, column, x) } else { at(b, batch, k, n, x, column) };
            let sum: f32 = (0..k).map(|x| left(x) * right(x)).sum();
            let index = batch * m * n + if light.row_major { row * n + column } else { column * m + row };
            out[index] = light.scalars[0] * sum + light.scalars[1] * c[index] + bias.map_or(0.0, |bias| bias[row]);
        }
    }
    out
}

#[test]
fn light_products_take_orders_transposes_batches_and_biases() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let sizes = [18usize, 9, 21];
    let biases = numbers(sizes[0], 9);
    let bias = bench.stream.clone_htod(&biases).unwrap();
    for case in 0..16 {
        let light = Light {
            bench: &bench,
            compute: sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            row_major: case & 1 != 0,
            transposes: [case & 2 != 0, case & 4 != 0],
            sizes,
            batches: 3,
            scalars: [2.0, 0.5],
            bias: (case & 8 != 0).then(|| bias.device_ptr(&bench.stream).0),
            activation: 0,
        };
        let [m, n, k] = sizes;
        let (a, b, c) = (numbers(3 * m * k, 1), numbers(3 * k * n, 2), numbers(3 * m * n, 3));
        let want = expected(&light, &a, &b, &c, (case & 8 != 0).then_some(&biases));
        let (da, db) = (bench.stream.clone_htod(&a).unwrap(), bench.stream.clone_htod(&b).unwrap());
        let mut dd = bench.stream.clone_htod(&c).unwrap();
        light.run((&da, &db), &mut dd).unwrap();
        assert_eq!(bench.stream.clone_dtoh(&dd).unwrap(), want, "case {case}");
        if case & 8 != 0 {
            continue;
        }
        let halves = |x: &[f32]| x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
        let (ha, hb) = (bench.stream.clone_htod(&halves(&a)).unwrap(), bench.stream.clone_htod(&halves(&b)).unwrap());
        let mut dd = bench.stream.clone_htod(&c).unwrap();
        light.run((&ha, &hb), &mut dd).unwrap();
        assert_eq!(bench.stream.clone_dtoh(&dd).unwrap(), want, "case {case}, bf16 to f32");
        let mut dd = bench.stream.clone_htod(&halves(&c)).unwrap();
        light.run((&ha, &hb), &mut dd).unwrap();
        assert_eq!(bench.stream.clone_dtoh(&dd).unwrap(), halves(&want), "case {case}, bf16 to bf16");
    }
}

#[test]
fn reduced_precision_is_visible_and_unknown_combinations_are_refused() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let product = |compute| {
        let light = Light {
            bench: &bench,
            compute,
            row_major: true,
            transposes: [false, false],
            sizes: [1, 1, 1],
            batches: 1,
            scalars: [1.0, 0.0],
            bias: None,
            activation: 0,
        };
        let a = bench.stream.clone_htod(&[1.000_1f32]).unwrap();
        let b = bench.stream.clone_htod(&[1f32]).unwrap();
        let mut d = bench.stream.alloc_zeros::<f32>(1).unwrap();
        light.run((&a, &b), &mut d).map(|()| bench.stream.clone_dtoh(&d).unwrap()[0])
    };
    use sys::cublasComputeType_t::*;
    assert_eq!(product(CUBLAS_COMPUTE_32F), Ok(1.000_1));
    assert_eq!(product(CUBLAS_COMPUTE_32F_FAST_TF32), Ok(1.0));
    assert_eq!(product(CUBLAS_COMPUTE_16F), Err(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED));
    assert_eq!(product(CUBLAS_COMPUTE_64F), Err(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED));
}

#[test]
fn activations_come_after_the_bias() {
    let Some((_turn, _control)) = machine() else { return };
    let bench = Bench::new(0);
    let bias = bench.stream.clone_htod(&[-10f32, 10.0]).unwrap();
    let product = |activation| {
        let light = Light {
            bench: &bench,
            compute: sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            row_major: true,
            transposes: [false, false],
            sizes: [2, 1, 1],
            batches: 1,
            scalars: [1.0, 0.0],
            bias: Some(bias.device_ptr(&bench.stream).0),
            activation,
        };
        let (a, b) = (bench.stream.clone_htod(&[9f32, -9.0]).unwrap(), bench.stream.clone_htod(&[1f32]).unwrap());
        let mut d = bench.stream.alloc_zeros::<f32>(2).unwrap();
        light.run((&a, &b), &mut d).map(|()| bench.stream.clone_dtoh(&d).unwrap())
    };
    assert_eq!(product(0), Ok(vec![-1.0, 1.0]));
    assert_eq!(product(2), Ok(vec![0.0, 1.0]));
    let gelu = product(32).unwrap();
    assert!((gelu[0] + 0.158_808).abs() < 1e-4 && (gelu[1] - 0.841_192).abs() < 1e-4, "{gelu:?}");
    assert_eq!(product(128), Err(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED));
}
