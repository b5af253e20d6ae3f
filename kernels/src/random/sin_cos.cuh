// Sine and cosine in f64 as `simd::sin_cos` has them: reduction by multiples of pi/2, then the polynomials of fdlibm.
// The library's own ones keep a table in local memory for arguments that never come here.

static __device__ __forceinline__ void sin_cos(double x, double* sine, double* cosine) {
    double n = rint(x * 0.63661977236758134308);
    double r = (x - n * 1.5707963267341256) - n * 6.077100506506192e-11;
    double z = r * r;
    double s = 1.58969099521155e-10;
    s = s * z - 2.5050760253406863e-8;
    s = s * z + 2.755731370707007e-6;
    s = s * z - 1.984126982985795e-4;
    s = s * z + 8.33333333332249e-3;
    s = s * z - 0.16666666666666632;
    double c = -1.1359647557788195e-11;
    c = c * z + 2.087572321298175e-9;
    c = c * z - 2.7557314351390663e-7;
    c = c * z + 2.480158728947673e-5;
    c = c * z - 1.388888888887411e-3;
    c = c * z + 4.16666666666666e-2;
    s = r + r * z * s;
    c = 1.0 - 0.5 * z + z * z * c;
    u32 quadrant = (u32)(long long)n;
    double swapped = (quadrant & 1u) ? c : s;
    c = (quadrant & 1u) ? s : c;
    *sine = (quadrant & 2u) ? -swapped : swapped;
    *cosine = ((quadrant + 1u) & 2u) ? -c : c;
}
