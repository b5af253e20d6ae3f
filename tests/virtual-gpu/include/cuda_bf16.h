// bfloat16 of the device library: the part that plain kernels use. Sums and products are rounded once, from f32.
#pragma once
#include "vgpu_cuda.h"

struct __nv_bfloat16_raw { unsigned short x; };

namespace vgpu {
static inline unsigned short bf16_of(float value) {
  unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
static inline float of_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
} // namespace vgpu

struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
  __nv_bfloat16(float value) : bits(vgpu::bf16_of(value)) {}
  __nv_bfloat16(double value) : bits(vgpu::bf16_of((float)value)) {}
  __nv_bfloat16(int value) : bits(vgpu::bf16_of((float)value)) {}
  __nv_bfloat16(unsigned value) : bits(vgpu::bf16_of((float)value)) {}
  operator float() const { return vgpu::of_bf16(bits); }
  operator __nv_bfloat16_raw() const { return {bits}; }
};
typedef __nv_bfloat16 nv_bfloat16;

#define VGPU_HALF_OPERATORS(type)                                                                                      \
  static inline type operator+(type a, type b) { return type((float)a + (float)b); }                                   \
  static inline type operator-(type a, type b) { return type((float)a - (float)b); }                                   \
  static inline type operator*(type a, type b) { return type((float)a * (float)b); }                                   \
  static inline type operator/(type a, type b) { return type((float)a / (float)b); }                                   \
  static inline type operator-(type a) { return type(-(float)a); }                                                     \
  static inline type& operator+=(type& a, type b) { return a = a + b; }                                                \
  static inline type& operator-=(type& a, type b) { return a = a - b; }                                                \
  static inline type& operator*=(type& a, type b) { return a = a * b; }                                                \
  static inline type& operator/=(type& a, type b) { return a = a / b; }                                                \
  static inline bool operator==(type a, type b) { return (float)a == (float)b; }                                       \
  static inline bool operator!=(type a, type b) { return (float)a != (float)b; }                                       \
  static inline bool operator<(type a, type b) { return (float)a < (float)b; }                                         \
  static inline bool operator>(type a, type b) { return (float)a > (float)b; }                                         \
  static inline bool operator<=(type a, type b) { return (float)a <= (float)b; }                                       \
  static inline bool operator>=(type a, type b) { return (float)a >= (float)b; }                                       \
  static inline type __hadd(type a, type b) { return a + b; }                                                          \
  static inline type __hsub(type a, type b) { return a - b; }                                                          \
  static inline type __hmul(type a, type b) { return a * b; }                                                          \
  static inline type __hdiv(type a, type b) { return a / b; }                                                          \
  static inline type __hneg(type a) { return -a; }                                                                     \
  static inline type __habs(type a) { return type(fabsf((float)a)); }                                                  \
  static inline type __hfma(type a, type b, type c) { return type(fmaf((float)a, (float)b, (float)c)); }               \
  static inline type __hmax(type a, type b) { return type(fmaxf((float)a, (float)b)); }                                \
  static inline type __hmin(type a, type b) { return type(fminf((float)a, (float)b)); }                                \
  static inline bool __hgt(type a, type b) { return a > b; }                                                           \
  static inline bool __hlt(type a, type b) { return a < b; }                                                           \
  static inline bool __heq(type a, type b) { return a == b; }                                                          \
  static inline bool __hisnan(type a) { return (float)a != (float)a; }                                                 \
  static inline type hexp(type a) { return type(expf((float)a)); }                                                     \
  static inline type hlog(type a) { return type(logf((float)a)); }                                                     \
  static inline type hsqrt(type a) { return type(sqrtf((float)a)); }                                                   \
  static inline type hrsqrt(type a) { return type(rsqrtf((float)a)); }                                                 \
  static inline type atomicAdd(type* at, type value) {                                                                 \
    return vgpu::update(at, [value](type old) { return old + value; });                                                \
  }
VGPU_HALF_OPERATORS(__nv_bfloat16)

struct __attribute__((aligned(4))) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
};
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 value) { return (float)value; }
static inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
static inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16(__nv_bfloat16_raw{bits});
}
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
static inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {(float)v.x, (float)v.y}; }
static inline float __low2float(__nv_bfloat162 v) { return (float)v.x; }
static inline float __high2float(__nv_bfloat162 v) { return (float)v.y; }
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
static inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x + b.x, a.y + b.y}; }
static inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x * b.x, a.y * b.y}; }
static inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
