// Sums in two stages of one fixed shape: 1024 runs of whole blocks of 4096 elements, then the runs. Within a block f32,
// between blocks f64. No number depends on the device's size.

#define BLOCK 4096
#define THREADS 256

// Adds one run into `partial[blockIdx.x]`; a run is `blocks` blocks long.
#define OVER_RUN(TERM)                                                                                                 \
    __shared__ double room[THREADS / WARP];                                                                            \
    double run = 0.0;                                                                                                  \
    u64 first = (u64)blockIdx.x * blocks * BLOCK;                                                                      \
    for (u64 block = 0; block < blocks; block++) {                                                                     \
        float lane = 0.0f;                                                                                             \
        u64 start = first + block * BLOCK;                                                                             \
        for (u64 i = start + threadIdx.x; i < start + BLOCK && i < n; i += THREADS) {                                  \
            lane += TERM;                                                                                              \
        }                                                                                                              \
        run += (double)lane;                                                                                           \
    }                                                                                                                  \
    run = block_sum(run, room);                                                                                        \
    if (threadIdx.x == 0) {                                                                                            \
        partial[blockIdx.x] = run;                                                                                     \
    }

extern "C" __global__ void reduce_sum(double* partial, const float* x, u64 n, u64 blocks) {
    OVER_RUN(x[i])
}

extern "C" __global__ void reduce_sum_of_squares(double* partial, const float* x, u64 n, u64 blocks) {
    OVER_RUN(x[i] * x[i])
}

// One block of 256 threads adds the runs.
extern "C" __global__ void reduce_runs(float* out, const double* partial, u32 runs) {
    __shared__ double room[THREADS / WARP];
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < runs; i += THREADS) {
        sum += partial[i];
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) {
        out[0] = (float)sum;
    }
}
