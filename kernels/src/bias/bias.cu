// One element at a time for the sum; 32 columns a block for the bias's gradient.

#define COLUMNS 32
#define LANES 16

extern "C" __global__ void bias_forward(float* y, const float* bias, u64 n, u64 width) {
    for (EACH(i, n)) {
        y[i] += bias[i % width];
    }
}

// Adds to `dbias`: 16 threads a column take every 16th row, then their sums are added in order.
extern "C" __global__ void bias_backward(float* dbias, const float* dy, u64 rows, u64 width) {
    __shared__ float sums[LANES][COLUMNS];
    u64 column = (u64)blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0.0f;
    if (column < width) {
        for (u64 row = threadIdx.y; row < rows; row += LANES) {
            sum += dy[row * width + column];
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        for (int lane = 1; lane < LANES; lane++) {
            sum += sums[lane][threadIdx.x];
        }
        dbias[column] += sum;
    }
}
