// A thread takes one counter of Philox: four of the 32 columns that eight counters decide over.

// Decides over four elements of one token and hands each, with its factor, to `WHAT`.
#define OVER_COLUMNS(WHAT)                                                                                             \
    u64 counters = (width + 31) / 32 * 8;                                                                              \
    for (EACH(at, tokens * counters)) {                                                                                \
        u64 token = at / counters;                                                                                     \
        u64 counter = at % counters;                                                                                   \
        u64 sample = first_sample + token / length;                                                                    \
        Words words =                                                                                                  \
            philox(key0, key1, (u32)counter, (u32)(token % length), (u32)sample, (u32)(sample >> 32));                 \
        for (int w = 0; w < 4; w++) {                                                                                  \
            u64 column = counter / 8 * 32 + counter % 8 + w * 8;                                                       \
            if (column < width) {                                                                                      \
                u64 i = token * width + column;                                                                        \
                float factor = words.word[w] < below ? 0.0f : scale;                                                   \
                WHAT;                                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }

extern "C" __global__ void dropout_forward(float* out, const float* x, u64 tokens, u64 length, u64 width,
                                           u64 first_sample, u32 key0, u32 key1, u32 below, float scale) {
    OVER_COLUMNS(out[i] = x[i] * factor)
}

extern "C" __global__ void dropout_backward(float* dx, const float* dout, u64 tokens, u64 length, u64 width,
                                            u64 first_sample, u32 key0, u32 key1, u32 below, float scale) {
    OVER_COLUMNS(dx[i] += dout[i] * factor)
}
