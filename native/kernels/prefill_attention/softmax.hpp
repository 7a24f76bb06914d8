#ifndef GLM_KERNELS_PREFILL_ATTENTION_SOFTMAX_HPP
#define GLM_KERNELS_PREFILL_ATTENTION_SOFTMAX_HPP

#include <cstdint>

#include "native/kernels/attention/split_softmax.hpp"
#include "native/kernels/prefill_attention/products.hpp"
#include "native/kernels/prefill_attention/tiling.hpp"

namespace glm::kernels::prefill_attention_detail {

constexpr int32_t kFragmentColumns = 8;

struct RowState {
  float tops[kThreadRows] = {-INFINITY, -INFINITY};
  float totals[kThreadRows] = {0.0f, 0.0f};
  Fold folds[kThreadRows];

  __device__ __forceinline__ void take(const float (&next)[kThreadRows],
                                       float factor) {
#pragma unroll
    for (int32_t row = 0; row < kThreadRows; ++row) {
      folds[row] = fold_of(tops[row], next[row], factor);
      tops[row] = folds[row].top;
    }
  }

  __device__ __forceinline__ void add(const float (&next)[kThreadRows]) {
#pragma unroll
    for (int32_t row = 0; row < kThreadRows; ++row)
      totals[row] = folds[row](totals[row], next[row]);
  }
};

template <int32_t count>
__device__ inline void mask_future(float (&scores)[count], int32_t first_key,
                                   const int32_t (&positions)[kThreadRows]) {
  const int32_t column = first_key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int32_t i = 0; i < count; ++i) {
    const int32_t key = column + i / kFragmentScores * kFragmentColumns + i % 2;
    if (key > positions[i / 2 % 2]) scores[i] = -INFINITY;
  }
}

template <int32_t parts>
__device__ __forceinline__ void weigh_tile(float (&scores)[parts * kPartScores],
                                           const float (&tops)[kThreadRows],
                                           float factor,
                                           float (&totals)[kThreadRows]) {
#pragma unroll
  for (int32_t row = 0; row < kThreadRows; ++row) {
    const float offset = exponent_offset(tops[row], factor);
    float of_parts[parts];
#pragma unroll
    for (int32_t part = 0; part < parts; ++part)
      of_parts[part] =
          weigh_part(scores, part * kPartScores, row, factor, offset);
    totals[row] = split_total(of_parts);
  }
}

template <typename Products, int32_t count>
__device__ inline void pack_weights(const float (&scores)[count],
                                    uint32_t (&weights)[count / 8][4]) {
#pragma unroll
  for (int32_t i = 0; i < count / 2; ++i)
    weights[i / 4][i % 4] = Products::pack(scores[2 * i], scores[2 * i + 1]);
}

template <int32_t count>
__device__ __forceinline__ void fold_part(const float (&part)[count],
                                          const Fold (&folds)[kThreadRows],
                                          float (&output)[count]) {
#pragma unroll
  for (int32_t i = 0; i < count; ++i)
    output[i] = folds[i / 2 % 2](output[i], part[i]);
}

}

#endif
