// A block of 256 threads a row. Exponentials are added in f32 by each thread and in f64 over the block.

#define THREADS 256
#define IGNORE 0xffffffffu

// The largest element of a row.
static __device__ __forceinline__ float row_largest(const float* row, u64 vocab, float* room) {
    float most = MINUS_INFINITY;
    for (u64 i = threadIdx.x; i < vocab; i += THREADS) {
        most = larger(most, row[i]);
    }
    return block_largest(most, room);
}

// Adds up a thread's exponentials: 16 in f32, those sums in f64.
struct Sum {
    double whole;
    float part;
    u32 count;
};

static __device__ __forceinline__ void sum_add(Sum* sum, float x) {
    sum->part += x;
    if (++sum->count % 16 == 0) {
        sum->whole += (double)sum->part;
        sum->part = 0.0f;
    }
}

static __device__ __forceinline__ float loss(double sum, float most, float logit) {
    return (float)(log(sum) + (double)most - (double)logit);
}

extern "C" __global__ void cross_entropy_forward(float* nll, const float* logits, const u32* targets, u64 vocab) {
    __shared__ float most_room[THREADS / WARP];
    __shared__ double sum_room[THREADS / WARP];
    const float* row = logits + blockIdx.x * vocab;
    u32 target = targets[blockIdx.x];
    if (target >= vocab) {
        if (threadIdx.x == 0) {
            nll[blockIdx.x] = target == IGNORE ? 0.0f : NOT_A_NUMBER;
        }
        return;
    }
    float most = row_largest(row, vocab, most_room);
    Sum sum = {0.0, 0.0f, 0u};
    for (u64 i = threadIdx.x; i < vocab; i += THREADS) {
        sum_add(&sum, expf(row[i] - most));
    }
    double all = block_sum(sum.whole + (double)sum.part, sum_room);
    if (threadIdx.x == 0) {
        nll[blockIdx.x] = loss(all, most, row[target]);
    }
}

extern "C" __global__ void cross_entropy_forward_backward(float* nll, float* logits, const u32* targets, u64 vocab,
                                                          float scale) {
    __shared__ float most_room[THREADS / WARP];
    __shared__ double sum_room[THREADS / WARP];
    float* row = logits + blockIdx.x * vocab;
    u32 target = targets[blockIdx.x];
    if (target >= vocab) {
        float nothing = target == IGNORE ? 0.0f : NOT_A_NUMBER;
        for (u64 i = threadIdx.x; i < vocab; i += THREADS) {
            row[i] = nothing;
        }
        if (threadIdx.x == 0) {
            nll[blockIdx.x] = nothing;
        }
        return;
    }
    float logit = row[target];
    float most = row_largest(row, vocab, most_room);
    Sum sum = {0.0, 0.0f, 0u};
    for (u64 i = threadIdx.x; i < vocab; i += THREADS) {
        float power = expf(row[i] - most);
        row[i] = power;
        sum_add(&sum, power);
    }
    double all = block_sum(sum.whole + (double)sum.part, sum_room);
    float factor = (float)((double)scale / all);
    for (u64 i = threadIdx.x; i < vocab; i += THREADS) {
        float gradient = row[i] * factor;
        row[i] = i == target ? gradient - scale : gradient;
    }
    if (threadIdx.x == 0) {
        nll[blockIdx.x] = loss(all, most, logit);
    }
}
