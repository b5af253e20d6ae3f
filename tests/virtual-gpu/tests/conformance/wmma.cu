// One warp computes one 16 × 16 tile of C = A · B.
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void wmma_product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(left, a + (size_t)blockIdx.y * 16 * k + i, k);
    wmma::load_matrix_sync(right, b + (size_t)i * n + blockIdx.x * 16, n);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(c + (size_t)blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, wmma::mem_row_major);
}
