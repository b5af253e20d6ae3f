//! Matrix products by cuBLASLt. It thinks in columns: a row-major matrix is the transpose of the column-major one in the
//! same place, so `out = a · b` is asked for as `outᵀ = bᵀ · aᵀ`, without moving anything.
//!
//! What a product of one shape needs (descriptors, and the algorithm that the library's heuristic prefers) is made once.

use super::{DeviceError, DeviceFailure, FailureKind, Queue, queue};
use crate::matmul::{Orientation, Shape};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasStatus_t as Status, cudaDataType_t as Type,
};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// Shapes that are remembered: generation brings one for each length of a prompt.
const PLANS_MAX: usize = 1024;

/// The library's handle and what was made with it.
pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    plans: Mutex<HashMap<Key, Plan>>,
}

/// One product. Buffers are addresses; operands are bf16 or f32, the result is f32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub orientation: Orientation,
    pub shape: Shape,
    /// Addresses of a and b, and how far apart their rows lie, in elements.
    pub operands: [(u64, usize); 2],
    pub bf16: bool,
    pub out: u64,
    /// Alpha and beta.
    pub scale: [f32; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    orientation: Orientation,
    sizes: [usize; 3],
    strides: [usize; 2],
    bf16: bool,
    /// What the three addresses are multiples of, at most 256.
    aligned: [u32; 3],
}

/// Descriptors of one shape. They are freed with the plan.
struct Plan {
    product: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Blas {
    pub(super) fn new() -> Blas {
        Blas { handle: std::ptr::null_mut(), plans: Mutex::default() }
    }

    /// With the device's context current.
    pub(super) fn open(&mut self) -> Result<(), DeviceError> {
        self.handle = result::create_handle().map_err(|error| DeviceError::Call {
            operation: "opening cuBLASLt",
            name: format!("{:?}", error.0),
            code: error.0 as u32,
        })?;
        Ok(())
    }

    /// With the device's context current, when no product is under way.
    pub(super) fn close(&mut self) {
        self.plans.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        if !self.handle.is_null() {
            // SAFETY: from `create_handle`, destroyed once.
            let _ = unsafe { result::destroy_handle(std::mem::replace(&mut self.handle, std::ptr::null_mut())) };
        }
    }

    fn order(&self, queue: &Queue, product: Product) -> Result<(), CublasError> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Key::of(product);
        if plans.len() >= PLANS_MAX && !plans.contains_key(&key) {
            plans.clear();
        }
        let plan = match plans.entry(key) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(Plan::new(self.handle, key)?),
        };
        let [alpha, beta] = product.scale;
        let [a, b] = product.operands.map(|(at, _)| at as *const c_void);
        let out = product.out as *mut c_void;
        let [layout_b, layout_a, layout_out] = plan.layouts;
        // SAFETY: descriptors live in the plan; operands are on the device and as long as their shapes, which the caller
        // checked; the room is the stream's own and of the size that the algorithm was asked to keep to.
        unsafe {
            result::matmul(
                self.handle,
                plan.product,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                b,
                layout_b,
                a,
                layout_a,
                out,
                layout_out,
                out,
                layout_out,
                &plan.algorithm,
                queue.blas_room() as *mut c_void,
                queue::BLAS_BYTES as usize,
                queue.raw.cast(),
            )
        }
    }
}

/// Orders a product. A failure ends this thread's work.
pub(crate) fn product(queue: &Queue, product: Product) {
    let gpu = &*queue.gpu;
    gpu.expect("matmul", gpu.current());
    if let Err(CublasError(status)) = gpu.blas.order(queue, product) {
        queue.check("matmul");
        let kind = match status {
            Status::CUBLAS_STATUS_ALLOC_FAILED => FailureKind::OutOfMemory,
            Status::CUBLAS_STATUS_EXECUTION_FAILED => FailureKind::LaunchFailed,
            _ => FailureKind::Other,
        };
        let name = format!("{status:?} for {product:?}");
        DeviceFailure { device: gpu.index, operation: "matmul", kind, name, code: status as u32 }.raise()
    }
}

impl Key {
    fn of(product: Product) -> Key {
        let Product { orientation, shape, operands, bf16, out, .. } = product;
        let [a, b] = operands;
        let aligned = [a.0, b.0, out].map(|at| 1 << at.trailing_zeros().min(8));
        Key { orientation, sizes: [shape.m, shape.n, shape.k], strides: [a.1, b.1], bf16, aligned }
    }
}

impl Plan {
    fn new(handle: sys::cublasLtHandle_t, key: Key) -> Result<Plan, CublasError> {
        let [m, n, k] = key.sizes;
        let operand = if key.bf16 { Type::CUDA_R_16BF } else { Type::CUDA_R_32F };
        // As stored: rows and columns of the row-major matrices.
        let (a, b) = match key.orientation {
            Orientation::Nt => ([m, k], [n, k]),
            Orientation::Nn => ([m, k], [k, n]),
            Orientation::Tn => ([k, m], [k, n]),
        };
        // True f32: cuBLASLt takes TF32 only where `COMPUTE_32F_FAST_TF32` allows it.
        let product = result::create_matmul_desc(Compute::CUBLAS_COMPUTE_32F, Type::CUDA_R_32F)?;
        let none = std::ptr::null_mut();
        // SAFETY: the heuristic writes it below, before it is used; it is plain words.
        let algorithm = unsafe { std::mem::zeroed() };
        let mut plan = Plan { product, layouts: [none; 3], algorithm };
        let layout = |kind, [rows, columns]: [usize; 2], stride: usize| {
            result::create_matrix_layout(kind, columns as u64, rows as u64, stride.max(columns) as i64)
        };
        plan.layouts[0] = layout(operand, b, key.strides[1])?;
        plan.layouts[1] = layout(operand, a, key.strides[0])?;
        plan.layouts[2] = layout(Type::CUDA_R_32F, [m, n], n)?;
        let transposed = [key.orientation == Orientation::Nt, key.orientation == Orientation::Tn];
        plan.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(transposed[0]))?;
        plan.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(transposed[1]))?;
        plan.algorithm = plan.choose(handle, key.aligned)?;
        Ok(plan)
    }

    fn set(&self, attribute: Attribute, value: i32) -> Result<(), CublasError> {
        // SAFETY: the descriptor is alive, the attribute takes four bytes.
        unsafe { result::set_matmul_desc_attribute(self.product, attribute, (&raw const value).cast(), 4) }
    }

    /// The algorithm that the library's heuristic puts first. It depends on device, library and shape alone.
    fn choose(
        &self,
        handle: sys::cublasLtHandle_t,
        [a, b, out]: [u32; 3],
    ) -> Result<sys::cublasLtMatmulAlgo_t, CublasError> {
        let wishes = Wishes(result::create_matmul_pref()?);
        wishes.set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &queue::BLAS_BYTES.to_ne_bytes())?;
        // The library's first operand is our second.
        wishes.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b.to_ne_bytes())?;
        wishes.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a.to_ne_bytes())?;
        wishes.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out.to_ne_bytes())?;
        wishes.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out.to_ne_bytes())?;
        let [layout_b, layout_a, layout_out] = self.layouts;
        // SAFETY: all descriptors are alive.
        let chosen = unsafe {
            result::get_matmul_algo_heuristic(
                handle,
                self.product,
                layout_b,
                layout_a,
                layout_out,
                layout_out,
                wishes.0,
            )
        };
        chosen.map(|chosen| chosen.algo)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: each was made once and is destroyed once; the library copied them into work under way.
        unsafe {
            for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
                let _ = result::destroy_matrix_layout(layout);
            }
            let _ = result::destroy_matmul_desc(self.product);
        }
    }
}

/// What an algorithm has to keep to.
struct Wishes(sys::cublasLtMatmulPreference_t);

impl Wishes {
    fn set(&self, attribute: Preference, value: &[u8]) -> Result<(), CublasError> {
        // SAFETY: the preference is alive and the attribute takes as many bytes.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, value.as_ptr().cast(), value.len()) }
    }
}

impl Drop for Wishes {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}
