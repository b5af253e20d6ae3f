// The gated activation, an element a thread.

extern "C" __global__ void swiglu_forward(float* out, const float* gate, const float* up, u64 n) {
    for (EACH(i, n)) {
        float g = gate[i];
        out[i] = g / (1.0f + expf(-g)) * up[i];
    }
}

extern "C" __global__ void swiglu_backward(float* gate, float* up, const float* dout, u64 n) {
    for (EACH(i, n)) {
        float g = gate[i];
        float sigmoid = 1.0f / (1.0f + expf(-g));
        float dsilu = sigmoid * (1.0f + g * (1.0f - sigmoid));
        float dup = dout[i] * (g * sigmoid);
        gate[i] = dout[i] * up[i] * dsilu;
        up[i] = dup;
    }
}
