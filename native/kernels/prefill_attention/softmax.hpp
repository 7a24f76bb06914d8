#pragma once

#include <cstdint>

#include "native/kernels/prefill_attention/products.hpp"
#include "native/kernels/prefill_attention/tiling.hpp"
#include "native/ptx/approximate.hpp"

namespace glm::kernels::prefill_attention_detail {

constexpr int32_t kThreadRows = 2;
constexpr int32_t kFragment = 4;
constexpr int32_t kFragmentColumns = 8;
constexpr float kNothing = -INFINITY;

struct RowState {
  float maximum[kThreadRows] = {kNothing, kNothing};
  float sum[kThreadRows] = {0.0f, 0.0f};
  float scale[kThreadRows] = {0.0f, 0.0f};
};

__device__ inline float quad_maximum(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
}

__device__ inline float quad_sum(float value) {
  value = __fadd_rn(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
  return __fadd_rn(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
}

template <int32_t count>
__device__ inline void mask_future(float (&scores)[count], int32_t first_key,
                                   const int32_t (&positions)[kThreadRows]) {
  const int32_t column = first_key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int32_t i = 0; i < count; ++i) {
    const int32_t key = column + i / kFragment * kFragmentColumns + i % 2;
    if (key > positions[i / 2 % 2]) scores[i] = kNothing;
  }
}

template <int32_t count>
__device__ inline float row_maximum(const float (&scores)[count], int32_t row) {
  float even = kNothing;
  float odd = kNothing;
#pragma unroll
  for (int32_t i = row * 2; i < count; i += kFragment) {
    even = fmaxf(even, scores[i]);
    odd = fmaxf(odd, scores[i + 1]);
  }
  return quad_maximum(fmaxf(even, odd));
}

template <int32_t count>
__device__ inline float exponentiate_row(float (&scores)[count], int32_t row,
                                         float factor, float offset) {
  float even = 0.0f;
  float odd = 0.0f;
#pragma unroll
  for (int32_t i = row * 2; i < count; i += kFragment) {
    scores[i] = ptx::approximate_exp2(__fmaf_rn(scores[i], factor, -offset));
    scores[i + 1] =
        ptx::approximate_exp2(__fmaf_rn(scores[i + 1], factor, -offset));
    even = __fadd_rn(even, scores[i]);
    odd = __fadd_rn(odd, scores[i + 1]);
  }
  return __fadd_rn(even, odd);
}

template <bool masked, int32_t count>
__device__ inline void update_softmax(float (&scores)[count], RowState& state,
                                      float factor) {
  float maxima[kThreadRows];
#pragma unroll
  for (int32_t row = 0; row < kThreadRows; ++row)
    maxima[row] = row_maximum(scores, row);
#pragma unroll
  for (int32_t row = 0; row < kThreadRows; ++row) {
    const bool grows = maxima[row] > state.maximum[row];
    const float maximum = grows ? maxima[row] : state.maximum[row];
    const bool empty = masked && maximum == kNothing;
    const float offset = empty ? 0.0f : __fmul_rn(maximum, factor);
    state.scale[row] = grows ? ptx::approximate_exp2(__fmaf_rn(
                                   state.maximum[row], factor, -offset))
                             : 1.0f;
    state.maximum[row] = maximum;
    const float sum = exponentiate_row(scores, row, factor, offset);
    state.sum[row] = __fmaf_rn(state.sum[row], state.scale[row], sum);
  }
}

template <typename Products, int32_t count>
__device__ inline void pack_weights(const float (&scores)[count],
                                    uint32_t (&weights)[count / 8][4]) {
#pragma unroll
  for (int32_t i = 0; i < count / 2; ++i)
    weights[i / 4][i % 4] = Products::pack(scores[2 * i], scores[2 * i + 1]);
}

template <int32_t parts, int32_t count>
__device__ inline void rescale(float (&output)[parts][count],
                               const float (&scale)[kThreadRows]) {
#pragma unroll
  for (int32_t part = 0; part < parts; ++part)
#pragma unroll
    for (int32_t i = 0; i < count; ++i)
      output[part][i] = __fmul_rn(output[part][i], scale[i / 2 % 2]);
}

}
