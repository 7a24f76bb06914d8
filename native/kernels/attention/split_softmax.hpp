#ifndef GLM_KERNELS_ATTENTION_SPLIT_SOFTMAX_HPP
#define GLM_KERNELS_ATTENTION_SPLIT_SOFTMAX_HPP

#include <cstdint>

#include "native/kernels/attention/context_splits.hpp"
#include "native/ptx/approximate.hpp"

namespace glm::kernels {

constexpr int32_t kThreadRows = 2;
constexpr int32_t kFragmentScores = 4;
constexpr int32_t kPartScores = kPartBlocks * 2 * kFragmentScores;

__device__ inline float quad_maximum(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}

__device__ inline float quad_sum(float value) {
  value = __fadd_rn(value, __shfl_xor_sync(~0u, value, 1));
  return __fadd_rn(value, __shfl_xor_sync(~0u, value, 2));
}

template <int32_t count>
__device__ __forceinline__ float row_maximum(const float (&scores)[count],
                                             int32_t row) {
  float even = -INFINITY;
  float odd = -INFINITY;
#pragma unroll
  for (int32_t i = row * 2; i < count; i += kFragmentScores) {
    even = fmaxf(even, scores[i]);
    odd = fmaxf(odd, scores[i + 1]);
  }
  return quad_maximum(fmaxf(even, odd));
}

__device__ inline float exponent_offset(float top, float factor) {
  return top == -INFINITY ? 0.0f : __fmul_rn(top, factor);
}

template <int32_t count>
__device__ __forceinline__ float weigh_part(float (&scores)[count],
                                            int32_t first, int32_t row,
                                            float factor, float offset) {
  float even = 0.0f;
  float odd = 0.0f;
#pragma unroll
  for (int32_t i = first + row * 2; i < first + kPartScores;
       i += kFragmentScores) {
    scores[i] = ptx::approximate_exp2(__fmaf_rn(scores[i], factor, -offset));
    scores[i + 1] =
        ptx::approximate_exp2(__fmaf_rn(scores[i + 1], factor, -offset));
    even = __fadd_rn(even, scores[i]);
    odd = __fadd_rn(odd, scores[i + 1]);
  }
  return __fadd_rn(even, odd);
}

template <int32_t parts>
__device__ __forceinline__ float split_total(const float (&of_parts)[parts]) {
  if constexpr (parts == 4)
    return __fadd_rn(__fadd_rn(of_parts[0], of_parts[1]),
                     __fadd_rn(of_parts[2], of_parts[3]));
  else
    return __fadd_rn(of_parts[0], of_parts[1]);
}

struct Fold {
  float top;
  float of_before;
  float of_next;

  __device__ float operator()(float before, float next) const {
    return __fmaf_rn(next, of_next, __fmul_rn(before, of_before));
  }
};

__device__ inline Fold fold_of(float before, float next, float factor) {
  const bool grows = next > before;
  const float top = grows ? next : before;
  const float other = ptx::approximate_exp2(
      __fmaf_rn(grows ? before : next, factor, -exponent_offset(top, factor)));
  return {top, grows ? other : 1.0f, grows ? 1.0f : other};
}

}

#endif
