// Kernels of the conformance tests.
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
