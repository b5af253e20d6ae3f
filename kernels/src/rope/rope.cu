// A thread turns one pair of elements of one token in all its heads: one sine and cosine for all of them. The angle is
// rounded to f32, as on the CPU. `cosines` and `sines` multiply them.

extern "C" __global__ void rope_turn(float* x, const u32* positions, const float* inv_freq, u64 tokens, u64 heads, u64 half,
                                     float cosines, float sines) {
    for (EACH(at, tokens * half)) {
        u64 token = at / half;
        u64 e = at % half;
        double s, c;
        sin_cos((double)((float)positions[token] * inv_freq[e]), &s, &c);
        float cosine = cosines * (float)c;
        float sine = sines * (float)s;
        for (u64 head = 0; head < heads; head++) {
            u64 low = (token * heads + head) * 2 * half + e;
            float a = x[low];
            float b = x[low + half];
            x[low] = a * cosine - b * sine;
            x[low + half] = b * cosine + a * sine;
        }
    }
}
