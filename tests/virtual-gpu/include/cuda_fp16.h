// Half precision of the device library: the part that plain kernels use. Sums and products are rounded once, from f32.
#pragma once
#include "cuda_bf16.h"

struct __half_raw { unsigned short x; };

namespace vgpu {
// To nearest, ties to even, by scaling so that f32 addition does the rounding of subnormals.
static inline unsigned short half_of(float value) {
  unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return 0x7fff;
  if (size >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  if (size < 0x38800000u) {
    float shifted = __uint_as_float(size) + 0.5f; // the last place of 0.5 is 2^-24, the smallest half
    return (unsigned short)(sign | (__float_as_uint(shifted) - 0x3f000000u));
  }
  unsigned rounded = size + 0xfffu + (size >> 13 & 1u) - 0x38000000u;
  return (unsigned short)(sign | rounded >> 13);
}
static inline float of_half(unsigned short bits) {
  unsigned sign = (unsigned)(bits & 0x8000u) << 16, size = bits & 0x7fffu;
  if (size >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (size & 0x3ffu) << 13);
  if (size < 0x400u) return __uint_as_float(sign | __float_as_uint((float)size * 0x1p-24f));
  return __uint_as_float(sign | ((size << 13) + 0x38000000u));
}
} // namespace vgpu

struct __half {
  unsigned short bits;
  __half() = default;
  __half(__half_raw raw) : bits(raw.x) {}
  __half(float value) : bits(vgpu::half_of(value)) {}
  __half(double value) : bits(vgpu::half_of((float)value)) {}
  __half(int value) : bits(vgpu::half_of((float)value)) {}
  __half(unsigned value) : bits(vgpu::half_of((float)value)) {}
  operator float() const { return vgpu::of_half(bits); }
  operator __half_raw() const { return {bits}; }
};
typedef __half half;
VGPU_HALF_OPERATORS(__half)

struct __attribute__((aligned(4))) __half2 {
  __half x, y;
  __half2() = default;
  __half2(__half a, __half b) : x(a), y(b) {}
};
typedef __half2 half2;

static inline float __half2float(__half value) { return (float)value; }
static inline __half __float2half(float value) { return __half(value); }
static inline __half __float2half_rn(float value) { return __half(value); }
static inline unsigned short __half_as_ushort(__half value) { return value.bits; }
static inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
static inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
static inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
static inline __half2 __half2half2(__half a) { return {a, a}; }
static inline float2 __half22float2(__half2 v) { return {(float)v.x, (float)v.y}; }
static inline float __low2float(__half2 v) { return (float)v.x; }
static inline float __high2float(__half2 v) { return (float)v.y; }
static inline __half __low2half(__half2 v) { return v.x; }
static inline __half __high2half(__half2 v) { return v.y; }
static inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
static inline __half2 __hmul2(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
