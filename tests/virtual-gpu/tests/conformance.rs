//! The double through the bindings that the product uses: what must work, and what must fail as it does on a GPU.

use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use virtual_gpu::{Control, Order, Script, control};

const DEVICES: usize = 4;
const MEMORY: u64 = 256 << 20;

/// Settings, faults and accounting are the process's, so that tests take turns.
fn machine() -> Option<(MutexGuard<'static, ()>, Control)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match virtual_gpu::install(&Script::with_devices(DEVICES, MEMORY)) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(why) => {
            eprintln!("{why}");
            return None;
        }
    }
    let control = control();
    (0..DEVICES).for_each(|device| control.revive(device));
    control.messages();
    control.violations();
    Some((turn, control))
}

fn options() -> CompileOptions {
    CompileOptions { arch: Some("sm_90"), name: Some("conformance.cu".into()), ..Default::default() }
}

const KERNELS: &str = r#"
#include <cuda_bf16.h>
extern "C" __global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, size_t n) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
__device__ __forceinline__ float warp_sum(float v) {
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
  return v;
}
extern "C" __global__ void __launch_bounds__(1024) block_sum(const __nv_bfloat16* x, float* out, int n) {
  __shared__ float part[32];
  float sum = 0.f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += (float)x[i];
  sum = warp_sum(sum);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = warp_sum(threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.f);
    if (threadIdx.x == 0) atomicAdd(out, sum);
  }
}
extern "C" __global__ void reversed(const float* x, float* y, int with_barrier) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = x[threadIdx.x];
  if (with_barrier) __syncthreads();
  y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void store_at(float* x, long long at) { x[at] = 1.f; }
extern "C" __global__ void shared_store(float* out, int at) {
  extern __shared__ float tile[];
  tile[at] = 3.f;
  out[0] = tile[0];
}
extern "C" __global__ void stuck(float* out) {
  if (threadIdx.x < 8) return;
  if (threadIdx.x < 16) __syncthreads();
  else __syncwarp(0x00ffffffu);
  out[0] = 1.f;
}
extern "C" __global__ void votes(int* out) {
  int odd = threadIdx.x & 1;
  out[threadIdx.x] = __syncthreads_count(odd) * 1000 + __popc(__ballot_sync(0xffffffffu, odd)) * 10 + __syncthreads_and(1);
}
__device__ int counter;
__constant__ float factors[4];
extern "C" __global__ void use_globals(float* out) {
  atomicAdd(&counter, 1);
  out[threadIdx.x] = factors[threadIdx.x & 3];
}
template <typename T, int N> __global__ void scale(T* x) { x[threadIdx.x] = x[threadIdx.x] * T(N); }
"#;

struct Bench {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
}

impl Bench {
    fn new(device: usize) -> Bench {
        let context = CudaContext::new(device).unwrap();
        let stream = context.new_stream().unwrap();
        let module = context.load_module(compile_ptx_with_opts(KERNELS, options()).unwrap()).unwrap();
        Bench { context, stream, module }
    }

    fn kernel(&self, name: &str) -> CudaFunction {
        self.module.load_function(name).unwrap()
    }
}

fn threads(count: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (count, 1, 1), shared_mem_bytes: 0 }
}

fn code<T: std::fmt::Debug>(result: Result<T, cudarc::driver::DriverError>) -> sys::CUresult {
    result.unwrap_err().0
}

// ---- devices ----

#[test]
fn devices_are_those_of_the_script() {
    let Some((_turn, control)) = machine() else { return };
    assert_eq!(CudaContext::device_count().unwrap(), DEVICES as i32);
    let context = CudaContext::new(1).unwrap();
    assert_eq!(context.name().unwrap(), "Virtual GPU");
    assert_eq!(context.compute_capability().unwrap(), (9, 0));
    assert_eq!(context.total_mem().unwrap(), MEMORY as usize);
    assert!(context.has_async_alloc());
    assert_ne!(context.uuid().unwrap().bytes, CudaContext::new(2).unwrap().uuid().unwrap().bytes);
    assert_eq!(code(CudaContext::new(DEVICES)), sys::CUresult::CUDA_ERROR_INVALID_DEVICE);
    let _ = control;
}

// ---- kernels ----

#[test]
fn elementwise_kernels_run_in_every_order() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let n = 100_001usize;
    let x: Vec<f32> = (0..n).map(|i| (i % 1000) as f32).collect();
    for (order, workers) in [(Order::Forward, 1), (Order::Reverse, 2), (Order::Random, 3)] {
        control.set_order(order);
        control.set_threads(workers);
        let given = bench.stream.clone_htod(&x).unwrap();
        let mut sums = bench.stream.clone_htod(&vec![1f32; n]).unwrap();
        let (kernel, factor) = (bench.kernel("saxpy"), 2f32);
        let mut launch = bench.stream.launch_builder(&kernel);
        launch.arg(&factor).arg(&given).arg(&mut sums).arg(&n);
        unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }.unwrap();
        let sums = bench.stream.clone_dtoh(&sums).unwrap();
        assert!(sums.iter().zip(&x).all(|(y, x)| *y == 2.0 * x + 1.0), "{order:?}");
    }
}

#[test]
fn reductions_with_shuffles_and_barriers_are_right() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    let x: Vec<half::bf16> = (0..50_000).map(|i| half::bf16::from_f32((i % 7) as f32 - 3.0)).collect();
    let want: f32 = x.iter().map(|x| x.to_f32()).sum();
    for order in [Order::Forward, Order::Reverse, Order::Random] {
        control.set_order(order);
        let given = bench.stream.clone_htod(&x).unwrap();
        let mut sum = bench.stream.alloc_zeros::<f32>(1).unwrap();
        let (kernel, n) = (bench.kernel("block_sum"), x.len() as i32);
        let mut launch = bench.stream.launch_builder(&kernel);
        launch.arg(&given).arg(&mut sum).arg(&n);
        let geometry = LaunchConfig { grid_dim: (8, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        unsafe { launch.launch(geometry) }.unwrap();
        assert_eq!(bench.stream.clone_dtoh(&sum).unwrap(), [want], "{order:?}");
    }
}

fn reversed(bench: &Bench, with_barrier: i32) -> usize {
    let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let given = bench.stream.clone_htod(&x).unwrap();
    let mut out = bench.stream.alloc_zeros::<f32>(64).unwrap();
    let kernel = bench.kernel("reversed");
    let mut launch = bench.stream.launch_builder(&kernel);
    launch.arg(&given).arg(&mut out).arg(&with_barrier);
    unsafe { launch.launch(LaunchConfig { shared_mem_bytes: 256, ..threads(64) }) }.unwrap();
    let out = bench.stream.clone_dtoh(&out).unwrap();
    out.iter().zip(x.iter().rev()).filter(|(a, b)| a != b).count()
}

#[test]
fn a_missing_barrier_shows() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    for order in [Order::Forward, Order::Reverse, Order::Random] {
        control.set_order(order);
        assert_eq!(reversed(&bench, 1), 0, "{order:?}");
        assert!(reversed(&bench, 0) > 0, "{order:?}");
    }
}

#[test]
fn votes_count_all_threads() {
    let Some((_turn, control)) = machine() else { return };
    let bench = Bench::new(0);
    for order in [Order::Forward, Order::Reverse, Order::Random] {
        control.set_order(order);
        let mut out = bench.stream.alloc_zeros::<i32>(96).unwrap();
        let kernel = bench.kernel("votes");
        unsafe { bench.stream.launch_builder(&kernel).arg(&mut out).launch(threads(96)) }.unwrap();
        assert_eq!(bench.stream.clone_dtoh(&out).unwrap(), [48 * 1000 + 161; 96]);
    }
}
