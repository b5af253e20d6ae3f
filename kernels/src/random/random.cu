// Normal numbers by Box and Muller's transform in f64. A thread takes one counter of Philox: four of the 32 elements
// that eight counters make, at the places where the CPU puts them.

extern "C" __global__ void random_normal(float* x, u64 n, float mean, float std, u32 key0, u32 key1) {
    const double STEPS = 4294967296.0;
    const double TAU = 6.28318530717958647692;
    for (EACH(counter, (n + 31) / 32 * 8)) {
        Words words = philox(key0, key1, (u32)counter, (u32)(counter >> 32), 0u, 0u);
        u64 first = counter / 8 * 32 + counter % 8;
        for (int pair = 0; pair < 4; pair += 2) {
            double radius = sqrt(-2.0 * log(((double)words.word[pair] + 1.0) / STEPS));
            double s, c;
            sin_cos(TAU * (double)words.word[pair + 1] / STEPS, &s, &c);
            u64 i = first + pair * 8;
            if (i < n) {
                x[i] = mean + std * (float)(radius * c);
            }
            if (i + 8 < n) {
                x[i + 8] = mean + std * (float)(radius * s);
            }
        }
    }
}
