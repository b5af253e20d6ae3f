// Conversions of both half types.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" {
__global__ void round_halves(const float* x, unsigned short* bf16, unsigned short* f16, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  bf16[i] = __bfloat16_as_ushort(__float2bfloat16(x[i]));
  f16[i] = __half_as_ushort(__float2half(x[i]));
}
__global__ void widen_halves(float* bf16, float* f16, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  bf16[i] = __bfloat162float(__ushort_as_bfloat16((unsigned short)i));
  f16[i] = __half2float(__ushort_as_half((unsigned short)i));
}
__global__ void sum_halves(__nv_bfloat162* x, __half* y) {
  x[threadIdx.x] = __hadd2(x[threadIdx.x], __floats2bfloat162_rn(1.f, 2.f));
  y[threadIdx.x] = __hfma(y[threadIdx.x], __float2half(2.f), __float2half(0.5f));
  atomicAdd(&x[0].y, __float2bfloat16(1.f));
}
}
