// AdamW: seven streams of memory for some twenty operations an element, so memory decides. One thread an element.

extern "C" __global__ void adamw_step(float* p, float* m, float* v, const float* g, u64 n, float gradient_scale,
                                      float keep, float first, float beta2, float second, float root, float eps,
                                      float size) {
    for (EACH(i, n)) {
        float gradient = g[i] * gradient_scale;
        float mean = m[i] + first * (gradient - m[i]);
        float square = beta2 * v[i] + second * (gradient * gradient);
        m[i] = mean;
        v[i] = square;
        p[i] = keep * p[i] - size * (mean / (sqrtf(square) / root + eps));
    }
}
