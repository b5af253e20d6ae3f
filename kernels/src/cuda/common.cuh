// What every kernel begins with: short names of types, places of threads, and sums with a fixed order.
// The text stands in front of each `.cu`; no header of CUDA is needed.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

#define WARP 32
#define ALL_LANES 0xffffffffu
#define MINUS_INFINITY __uint_as_float(0xff800000u)
#define NOT_A_NUMBER __uint_as_float(0x7fc00000u)

// Elements of a grid-stride loop: `for (EACH(i, n))`.
#define EACH(i, n) u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x

// Adds up a warp by halves: a fixed tree. Every lane of the warp has to call it; all get the sum.
template <typename T> static __device__ __forceinline__ T warp_sum(T x) {
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        x += __shfl_xor_sync(ALL_LANES, x, apart);
    }
    return x;
}

// Adds up a block whose size is a multiple of a warp: warps by their trees, then the warps' sums in order. All threads
// have to call it; all get the sum. `room` holds one element a warp.
template <typename T> static __device__ __forceinline__ T block_sum(T x, T* room) {
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        room[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    T sum = room[0];
    for (u32 warp = 1; warp < blockDim.x / WARP; warp++) {
        sum += room[warp];
    }
    return sum;
}

// The larger of two; a NaN is passed over and surfaces in what is computed next.
static __device__ __forceinline__ float larger(float a, float b) {
    return b > a ? b : a;
}

// The largest of a block, as `block_sum` adds.
static __device__ __forceinline__ float block_largest(float x, float* room) {
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        x = larger(x, __shfl_xor_sync(ALL_LANES, x, apart));
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        room[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    float most = room[0];
    for (u32 warp = 1; warp < blockDim.x / WARP; warp++) {
        most = larger(most, room[warp]);
    }
    return most;
}
