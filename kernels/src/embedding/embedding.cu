// Rows of a table by index. The gradient has no atomic additions: each row of the table is summed by one block, tokens
// in order.

extern "C" __global__ void embedding_forward(float* out, const float* table, const u32* ids, u64 n, u64 width,
                                             u64 entries) {
    for (EACH(i, n * width)) {
        u64 id = ids[i / width];
        out[i] = id < entries ? table[id * width + i % width] : NOT_A_NUMBER;
    }
}

// A block of 256 threads a token. The block of an id's first token adds the gradients of all tokens with that id; the
// others leave at once.
extern "C" __global__ void embedding_backward(float* dtable, const float* dout, const u32* ids, u64 n, u64 width,
                                              u64 entries) {
    __shared__ u32 same[8];
    u64 first = blockIdx.x;
    u32 id = ids[first];
    u32 seen = 0;
    for (u64 j = threadIdx.x; j < first; j += blockDim.x) {
        seen |= ids[j] == id;
    }
    u32 before = __ballot_sync(ALL_LANES, seen != 0);
    if (threadIdx.x % WARP == 0) {
        same[threadIdx.x / WARP] = before;
    }
    __syncthreads();
    for (u32 warp = 0; warp < 8; warp++) {
        seen |= same[warp];
    }
    if (seen != 0 || id >= entries) {
        return;
    }
    for (u64 start = first; start < n; start += blockDim.x) {
        u64 j = start + threadIdx.x;
        u32 match = __ballot_sync(ALL_LANES, j < n && ids[j < n ? j : first] == id);
        __syncthreads();
        if (threadIdx.x % WARP == 0) {
            same[threadIdx.x / WARP] = match;
        }
        __syncthreads();
        for (u32 warp = 0; warp < 8; warp++) {
            for (u32 left = same[warp]; left != 0; left &= left - 1) {
                u64 token = start + warp * WARP + (__ffs(left) - 1);
                for (u64 c = threadIdx.x; c < width; c += blockDim.x) {
                    dtable[(u64)id * width + c] += dout[token * width + c];
                }
            }
        }
    }
}

// Makes the whole gradient NaN where an id is outside the table. Every block of 256 threads looks at all ids.
extern "C" __global__ void embedding_spoil(float* dtable, const u32* ids, u64 n, u64 len, u64 entries) {
    __shared__ u32 outside[8];
    u32 bad = 0;
    for (u64 j = threadIdx.x; j < n; j += blockDim.x) {
        bad |= ids[j] >= entries;
    }
    u32 any = __ballot_sync(ALL_LANES, bad != 0);
    if (threadIdx.x % WARP == 0) {
        outside[threadIdx.x / WARP] = any;
    }
    __syncthreads();
    for (u32 warp = 0; warp < 8; warp++) {
        bad |= outside[warp];
    }
    if (bad == 0) {
        return;
    }
    for (EACH(i, len)) {
        dtable[i] = NOT_A_NUMBER;
    }
}
