// A block of 256 threads a row for the output and the input's gradient; 32 columns a block for the weight's gradient.

#define THREADS 256
#define COLUMNS 32
#define LANES 16

extern "C" __global__ void rms_norm_forward(float* out, float* rstd, const float* x, const float* weight, u64 width,
                                            float eps) {
    __shared__ float room[THREADS / WARP];
    u64 row = (u64)blockIdx.x * width;
    float square = 0.0f;
    for (u64 i = threadIdx.x; i < width; i += THREADS) {
        square += x[row + i] * x[row + i];
    }
    float mean = block_sum(square, room) / (float)width;
    float scale = 1.0f / sqrtf(mean + eps);
    for (u64 i = threadIdx.x; i < width; i += THREADS) {
        out[row + i] = weight[i] * (x[row + i] * scale);
    }
    if (threadIdx.x == 0) {
        rstd[blockIdx.x] = scale;
    }
}

// `dx = rstd · (w · dout - x · rstd² · mean(x · w · dout))`, written or added.
extern "C" __global__ void rms_norm_backward(float* dx, const float* x, const float* weight, const float* rstd,
                                             const float* dout, u64 width, u32 accumulate) {
    __shared__ float room[THREADS / WARP];
    u64 row = (u64)blockIdx.x * width;
    float inner = 0.0f;
    for (u64 i = threadIdx.x; i < width; i += THREADS) {
        inner += x[row + i] * (weight[i] * dout[row + i]);
    }
    float mean = block_sum(inner, room) / (float)width;
    float scale = rstd[blockIdx.x];
    float back = scale * scale * mean;
    for (u64 i = threadIdx.x; i < width; i += THREADS) {
        float gradient = scale * (weight[i] * dout[row + i] - x[row + i] * back);
        dx[row + i] = accumulate ? dx[row + i] + gradient : gradient;
    }
}

// Adds to `dweight`: 16 threads a column take every 16th row, then their sums are added in order.
extern "C" __global__ void rms_norm_weight(float* dweight, const float* x, const float* rstd, const float* dout, u64 rows,
                                           u64 width) {
    __shared__ float sums[LANES][COLUMNS];
    u64 column = (u64)blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0.0f;
    if (column < width) {
        for (u64 row = threadIdx.y; row < rows; row += LANES) {
            sum += dout[row * width + column] * (x[row * width + column] * rstd[row]);
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        for (int lane = 1; lane < LANES; lane++) {
            sum += sums[lane][threadIdx.x];
        }
        dweight[column] += sum;
    }
}
