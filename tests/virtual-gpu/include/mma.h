// Warp matrix functions. Element e of a tile is held by lane e / (elements / 32): as on a device, kernels may treat all
// elements of a fragment alike, but not rely on which lane holds which.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K> struct Shape;
template <int M, int N, int K> struct Shape<matrix_a, M, N, K> { enum { rows = M, columns = K }; };
template <int M, int N, int K> struct Shape<matrix_b, M, N, K> { enum { rows = K, columns = N }; };
template <int M, int N, int K> struct Shape<accumulator, M, N, K> { enum { rows = M, columns = N }; };

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
  enum { rows = Shape<Use, M, N, K>::rows, columns = Shape<Use, M, N, K>::columns };
  enum { num_elements = rows * columns / 32 };
  T x[num_elements];
};

template <class U, int M, int N, int K, class T, class L, class V>
static inline void fill_fragment(fragment<U, M, N, K, T, L>& tile, V value) {
  for (T& element : tile.x) element = T(value);
}

template <class Tile, class T> static inline void load(Tile& tile, const T* from, unsigned pitch, bool row_wise) {
  __syncwarp();
  for (int i = 0; i < Tile::num_elements; i++) {
    int element = vgpu::lane() * Tile::num_elements + i;
    size_t row = element / Tile::columns, column = element % Tile::columns;
    tile.x[i] = row_wise ? from[row * pitch + column] : from[column * pitch + row];
  }
}
template <class U, int M, int N, int K, class T>
static inline void load_matrix_sync(fragment<U, M, N, K, T, row_major>& tile, const T* from, unsigned pitch) {
  load(tile, from, pitch, true);
}
template <class U, int M, int N, int K, class T>
static inline void load_matrix_sync(fragment<U, M, N, K, T, col_major>& tile, const T* from, unsigned pitch) {
  load(tile, from, pitch, false);
}
template <int M, int N, int K, class T>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& tile, const T* from, unsigned pitch,
                                    layout_t layout) {
  load(tile, from, pitch, layout == mem_row_major);
}

template <int M, int N, int K, class T>
static inline void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& tile, unsigned pitch,
                                     layout_t layout) {
  for (int i = 0; i < tile.num_elements; i++) {
    int element = vgpu::lane() * tile.num_elements + i;
    size_t row = element / N, column = element % N;
    to[layout == mem_row_major ? row * pitch + column : column * pitch + row] = tile.x[i];
  }
  __syncwarp();
}

template <class Tile> static inline float element_of(const uint64_t* lanes, int element) {
  const Tile* tile = (const Tile*)(uintptr_t)lanes[element / Tile::num_elements];
  return (float)tile->x[element % Tile::num_elements];
}

template <int M, int N, int K, class TA, class TB, class TC, class LA, class LB>
static inline void mma_sync(fragment<accumulator, M, N, K, TC>& out, const fragment<matrix_a, M, N, K, TA, LA>& a,
                            const fragment<matrix_b, M, N, K, TB, LB>& b, const fragment<accumulator, M, N, K, TC>& c) {
  typedef fragment<matrix_a, M, N, K, TA, LA> A;
  typedef fragment<matrix_b, M, N, K, TB, LB> B;
  enum { elements = M * N / 32 };
  uint64_t lanes_a[32], lanes_b[32];
  vgpu::gather(~0u, (uint64_t)(uintptr_t)&a, lanes_a);
  vgpu::gather(~0u, (uint64_t)(uintptr_t)&b, lanes_b);
  TC sums[elements];
  for (int i = 0; i < elements; i++) {
    int element = vgpu::lane() * elements + i, row = element / N, column = element % N;
    float sum = (float)c.x[i];
    for (int k = 0; k < K; k++) sum += element_of<A>(lanes_a, row * K + k) * element_of<B>(lanes_b, k * N + column);
    sums[i] = TC(sum);
  }
  __syncwarp(); // no lane changes a fragment that another one still reads
  for (int i = 0; i < elements; i++) out.x[i] = sums[i];
}

} // namespace wmma
} // namespace nvcuda
