// What surrounds the library's matrix products: rounding to bf16.

// Rounds to bf16, to nearest and ties to even; NaN stays NaN.
static __device__ __forceinline__ u16 bf16_of(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (u16)((bits >> 16) | 0x40u);
    }
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Rows of `columns` elements become rows of bf16 that lie `stride` apart; what is between them is not written.
extern "C" __global__ void matmul_round(u16* to, const float* from, u64 rows, u64 columns, u64 stride) {
    for (EACH(i, rows * columns)) {
        to[i / columns * stride + i % columns] = bf16_of(from[i]);
    }
}
