// Attention in tiles of 16 queries and 16 keys; a block of 16 × 16 threads, of which thread (x, y) owns the score of
// query y with key x, and of each row y the elements x, x + 16, ... All in f32. Sums have a fixed order: keys in order for
// outputs and query gradients; heads of a group, then queries, in order for key and value gradients.

#define TILE 16
#define SIDE (TILE + 1)

// Sizes of one layer. Row b has `past` keys before its queries.
struct Layout {
    u32 length, past, heads, kv_heads, head_dim;
};

// A tile in shared memory: 16 rows, one element apart more than they are wide, so that columns fall into other banks.
struct Tile {
    float* data;
    u32 stride;
    __device__ __forceinline__ float& at(u32 row, u32 column) const {
        return data[row * stride + column];
    }
};

static __device__ __forceinline__ Tile tile_at(float* room, u32 index, u32 head_dim) {
    Tile tile = {room + index * TILE * (head_dim + 1), head_dim + 1};
    return tile;
}

// Loads up to 16 rows, `stride` elements apart; rows beyond `count` become zero.
static __device__ __forceinline__ void load(Tile to, const float* from, u64 stride, u32 count, u32 head_dim) {
    for (u32 e = threadIdx.x; e < head_dim; e += TILE) {
        to.at(threadIdx.y, e) = threadIdx.y < count ? from[threadIdx.y * stride + e] : 0.0f;
    }
}

static __device__ __forceinline__ void store(float* to, Tile from, u64 stride, u32 count, u32 head_dim) {
    for (u32 e = threadIdx.x; e < head_dim; e += TILE) {
        if (threadIdx.y < count) {
            to[threadIdx.y * stride + e] = from.at(threadIdx.y, e);
        }
    }
}

static __device__ __forceinline__ void clear(Tile to, u32 head_dim) {
    for (u32 e = threadIdx.x; e < head_dim; e += TILE) {
        to.at(threadIdx.y, e) = 0.0f;
    }
}

// Inner product of row `i` of one tile with row `j` of another.
static __device__ __forceinline__ float inner(Tile a, u32 i, Tile b, u32 j, u32 head_dim) {
    float sum = 0.0f;
    for (u32 e = 0; e < head_dim; e++) {
        sum += a.at(i, e) * b.at(j, e);
    }
    return sum;
}

// First query or key of row b, head h, at position t.
static __device__ __forceinline__ u64 query_at(Layout by, u32 b, u32 h, u32 t) {
    return (((u64)b * by.length + t) * by.heads + h) * by.head_dim;
}

static __device__ __forceinline__ u64 key_at(Layout by, u32 b, u32 h, u32 t) {
    return (((u64)b * (by.past + by.length) + t) * by.kv_heads + h) * by.head_dim;
}

// First key that query t of row b sees.
static __device__ __forceinline__ u32 first_seen(Layout by, const u32* starts, u32 b, u32 t) {
    return starts != 0 && t < by.length ? starts[(u64)b * by.length + t] : 0;
}

// The smallest of the 16 rows' first keys.
static __device__ __forceinline__ u32 smallest(const u32* first, u32 count) {
    u32 least = first[0];
    for (u32 i = 1; i < count; i++) {
        least = min(least, first[i]);
    }
    return least;
}

// Keys of the tile from `start` that row y sees, as a range within the tile; empty where it sees none.
struct Seen {
    u32 from, to;
};

static __device__ __forceinline__ Seen seen_of(u32 first, u32 last, u32 start, bool exists) {
    Seen seen = {0, 0};
    if (exists && last >= start) {
        seen.from = min(first > start ? first - start : 0u, (u32)TILE);
        seen.to = min(last - start + 1, (u32)TILE);
    }
    return seen;
}

// Grid: tiles of queries, heads, rows. Shared: queries, keys or values, outputs, and 16 × 17 probabilities.
extern "C" __global__ void attention_forward(float* out, float* lse, const float* q, const float* k, const float* v,
                                             const u32* starts, u32 length, u32 past, u32 heads, u32 kv_heads,
                                             u32 head_dim, float scale) {
    extern __shared__ float room[];
    __shared__ float scores[TILE][SIDE];
    __shared__ u32 firsts[TILE];
    Layout by = {length, past, heads, kv_heads, head_dim};
    Tile queries = tile_at(room, 0, head_dim), keys = tile_at(room, 1, head_dim), sums = tile_at(room, 2, head_dim);
    u32 t0 = blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z, kh = h / (heads / kv_heads);
    u32 count = min((u32)TILE, length - t0), t = t0 + threadIdx.y, last = past + t;
    bool exists = threadIdx.y < count;
    u32 first = first_seen(by, starts, b, t);
    u64 key_stride = (u64)kv_heads * head_dim, query_stride = (u64)heads * head_dim;
    if (threadIdx.x == 0) {
        firsts[threadIdx.y] = first;
    }
    load(queries, q + query_at(by, b, h, t0), query_stride, count, head_dim);
    clear(sums, head_dim);
    __syncthreads();
    float most = MINUS_INFINITY, sum = 0.0f;
    for (u32 start = smallest(firsts, count) / TILE * TILE; start < past + t0 + count; start += TILE) {
        u32 some = min((u32)TILE, past + length - start);
        Seen seen = seen_of(first, last, start, exists);
        load(keys, k + key_at(by, b, kh, start), key_stride, some, head_dim);
        __syncthreads();
        scores[threadIdx.y][threadIdx.x] = inner(queries, threadIdx.y, keys, threadIdx.x, head_dim) * scale;
        __syncthreads();
        load(keys, v + key_at(by, b, kh, start), key_stride, some, head_dim);
        float before = most;
        for (u32 j = seen.from; j < seen.to; j++) {
            most = larger(most, scores[threadIdx.y][j]);
        }
        float shrink = before == most ? 1.0f : expf(before - most);
        __syncthreads();
        if (threadIdx.x >= seen.from && threadIdx.x < seen.to) {
            scores[threadIdx.y][threadIdx.x] = expf(scores[threadIdx.y][threadIdx.x] - most);
        }
        __syncthreads();
        sum *= shrink;
        for (u32 j = seen.from; j < seen.to; j++) {
            sum += scores[threadIdx.y][j];
        }
        for (u32 e = threadIdx.x; e < head_dim; e += TILE) {
            float element = sums.at(threadIdx.y, e) * shrink;
            for (u32 j = seen.from; j < seen.to; j++) {
                element += scores[threadIdx.y][j] * keys.at(j, e);
            }
            sums.at(threadIdx.y, e) = element;
        }
        __syncthreads();
    }
    for (u32 e = threadIdx.x; e < head_dim; e += TILE) {
        sums.at(threadIdx.y, e) /= sum;
    }
    store(out + query_at(by, b, h, t0), sums, query_stride, count, head_dim);
    if (lse != 0 && exists && threadIdx.x == 0) {
        lse[((u64)b * length + t) * heads + h] = most + logf(sum);
    }
}

// `delta[n, h] = Σ dout · out`, a warp a head of a token.
extern "C" __global__ void attention_delta(float* delta, const float* out, const float* dout, u64 rows, u32 head_dim) {
    u64 row = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    u32 lane = threadIdx.x % WARP;
    float sum = 0.0f;
    for (u32 e = lane; row < rows && e < head_dim; e += WARP) {
        sum += out[row * head_dim + e] * dout[row * head_dim + e];
    }
    sum = warp_sum(sum);
    if (row < rows && lane == 0) {
        delta[row] = sum;
    }
}

// Grid: tiles of queries, heads, rows. Shared: queries, their outputs' gradients, keys, values, the result.
extern "C" __global__ void attention_backward_queries(float* dq, const float* q, const float* k, const float* v,
                                                      const u32* starts, const float* lse, const float* dout,
                                                      const float* delta, u32 length, u32 heads, u32 kv_heads,
                                                      u32 head_dim, float scale) {
    extern __shared__ float room[];
    __shared__ float slopes[TILE][SIDE];
    __shared__ u32 firsts[TILE];
    Layout by = {length, 0, heads, kv_heads, head_dim};
    Tile queries = tile_at(room, 0, head_dim), gradients = tile_at(room, 1, head_dim), keys = tile_at(room, 2, head_dim);
    Tile values = tile_at(room, 3, head_dim), sums = tile_at(room, 4, head_dim);
    u32 t0 = blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z, kh = h / (heads / kv_heads);
    u32 count = min((u32)TILE, length - t0), t = t0 + threadIdx.y;
    bool exists = threadIdx.y < count;
    u32 first = first_seen(by, starts, b, t);
    u64 key_stride = (u64)kv_heads * head_dim, query_stride = (u64)heads * head_dim;
    u64 row = ((u64)b * length + (exists ? t : t0)) * heads + h;
    float log_sum = lse[row], own_delta = delta[row];
    if (threadIdx.x == 0) {
        firsts[threadIdx.y] = first;
    }
    load(queries, q + query_at(by, b, h, t0), query_stride, count, head_dim);
    load(gradients, dout + query_at(by, b, h, t0), query_stride, count, head_dim);
    clear(sums, head_dim);
    __syncthreads();
    for (u32 start = smallest(firsts, count) / TILE * TILE; start < t0 + count; start += TILE) {
        u32 some = min((u32)TILE, length - start);
        Seen seen = seen_of(first, t, start, exists);
        load(keys, k + key_at(by, b, kh, start), key_stride, some, head_dim);
        load(values, v + key_at(by, b, kh, start), key_stride, some, head_dim);
        __syncthreads();
        float p = expf(inner(queries, threadIdx.y, keys, threadIdx.x, head_dim) * scale - log_sum);
        float dp = inner(gradients, threadIdx.y, values, threadIdx.x, head_dim);
        slopes[threadIdx.y][threadIdx.x] = p * (dp - own_delta) * scale;
        __syncthreads();
        for (u32 e = threadIdx.x; e < head_dim; e += TILE) {
            float element = sums.at(threadIdx.y, e);
            for (u32 j = seen.from; j < seen.to; j++) {
                element += slopes[threadIdx.y][j] * keys.at(j, e);
            }
            sums.at(threadIdx.y, e) = element;
        }
        __syncthreads();
    }
    store(dq + query_at(by, b, h, t0), sums, query_stride, count, head_dim);
}

// Grid: tiles of keys, key heads, rows. Shared: keys, values, both results, queries, their outputs' gradients. Here thread
// (x, y) owns the score of query x with key y, so that row y of the results is summed by its own threads.
extern "C" __global__ void attention_backward_keys(float* dk, float* dv, const float* q, const float* k, const float* v,
                                                   const u32* starts, const float* lse, const float* dout,
                                                   const float* delta, u32 length, u32 heads, u32 kv_heads,
                                                   u32 head_dim, float scale) {
    extern __shared__ float room[];
    __shared__ float slopes[TILE][SIDE];
    __shared__ float shares[TILE][SIDE];
    __shared__ u32 firsts[TILE];
    Layout by = {length, 0, heads, kv_heads, head_dim};
    Tile keys = tile_at(room, 0, head_dim), values = tile_at(room, 1, head_dim), dkeys = tile_at(room, 2, head_dim);
    Tile dvalues = tile_at(room, 3, head_dim), queries = tile_at(room, 4, head_dim), gradients = tile_at(room, 5, head_dim);
    u32 start = blockIdx.x * TILE, kh = blockIdx.y, b = blockIdx.z, group = heads / kv_heads;
    u32 some = min((u32)TILE, length - start), key = start + threadIdx.y;
    u64 key_stride = (u64)kv_heads * head_dim, query_stride = (u64)heads * head_dim;
    load(keys, k + key_at(by, b, kh, start), key_stride, some, head_dim);
    load(values, v + key_at(by, b, kh, start), key_stride, some, head_dim);
    clear(dkeys, head_dim);
    clear(dvalues, head_dim);
    for (u32 h = kh * group; h < (kh + 1) * group; h++) {
        for (u32 t0 = start; t0 < length; t0 += TILE) {
            u32 count = min((u32)TILE, length - t0);
            __syncthreads();
            if (threadIdx.y == 0) {
                firsts[threadIdx.x] = first_seen(by, starts, b, t0 + threadIdx.x);
            }
            __syncthreads();
            if (smallest(firsts, count) >= start + some) {
                continue;
            }
            load(queries, q + query_at(by, b, h, t0), query_stride, count, head_dim);
            load(gradients, dout + query_at(by, b, h, t0), query_stride, count, head_dim);
            __syncthreads();
            u32 query = t0 + min(threadIdx.x, count - 1);
            u64 row = ((u64)b * length + query) * heads + h;
            float p = expf(inner(queries, threadIdx.x, keys, threadIdx.y, head_dim) * scale - lse[row]);
            float dp = inner(gradients, threadIdx.x, values, threadIdx.y, head_dim);
            shares[threadIdx.y][threadIdx.x] = p;
            slopes[threadIdx.y][threadIdx.x] = p * (dp - delta[row]) * scale;
            __syncthreads();
            for (u32 e = threadIdx.x; e < head_dim; e += TILE) {
                float dkey = dkeys.at(threadIdx.y, e), dvalue = dvalues.at(threadIdx.y, e);
                for (u32 i = 0; i < count; i++) {
                    if (key <= t0 + i && firsts[i] <= key) {
                        dkey += slopes[threadIdx.y][i] * queries.at(i, e);
                        dvalue += shares[threadIdx.y][i] * gradients.at(i, e);
                    }
                }
                dkeys.at(threadIdx.y, e) = dkey;
                dvalues.at(threadIdx.y, e) = dvalue;
            }
        }
    }
    store(dk + key_at(by, b, kh, start), dkeys, key_stride, some, head_dim);
    store(dv + key_at(by, b, kh, start), dvalues, key_stride, some, head_dim);
}
