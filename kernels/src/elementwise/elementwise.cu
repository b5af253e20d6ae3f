// One element at a time; memory decides.

extern "C" __global__ void elementwise_axpy(float* y, const float* x, u64 n, float alpha) {
    for (EACH(i, n)) {
        y[i] += alpha * x[i];
    }
}

extern "C" __global__ void elementwise_scale(float* x, u64 n, float alpha) {
    for (EACH(i, n)) {
        x[i] *= alpha;
    }
}

extern "C" __global__ void elementwise_fill(float* x, u64 n, float value) {
    for (EACH(i, n)) {
        x[i] = value;
    }
}

extern "C" __global__ void elementwise_copy(float* to, const float* from, u64 n) {
    for (EACH(i, n)) {
        to[i] = from[i];
    }
}
