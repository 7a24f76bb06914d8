#ifndef GLM_KERNELS_ROWS_SWIGLU_HPP
#define GLM_KERNELS_ROWS_SWIGLU_HPP

#include <cstdint>

#include "native/ptx/reciprocal.hpp"

namespace glm::kernels {

__device__ inline float swiglu_divisor(float gate) {
  return 1.0f + expf(-gate);
}

__device__ inline float swiglu(float gate, float up) {
  return gate / swiglu_divisor(gate) * up;
}

constexpr float kSmallestPlainGate = 0x1p-60f;
constexpr float kLargestPlain = 0x1p60f;

__device__ inline float plain_quotient(float value, float divisor) {
  const float first = ptx::approximate_reciprocal(divisor);
  const float reciprocal =
      __fmaf_rn(first, __fmaf_rn(-divisor, first, 1.0f), first);
  const float quotient = __fmul_rn(value, reciprocal);
  return __fmaf_rn(reciprocal, __fmaf_rn(-divisor, quotient, value), quotient);
}

template <int32_t count>
__device__ inline void swiglu_all(const float (&gate)[count],
                                  const float (&up)[count],
                                  float (&result)[count]) {
  bool is_plain = true;
#pragma unroll
  for (int32_t i = 0; i < count; ++i) {
    const float divisor = swiglu_divisor(gate[i]);
    is_plain = is_plain && fabsf(gate[i]) >= kSmallestPlainGate &&
               fmaxf(fabsf(gate[i]), divisor) <= kLargestPlain;
    result[i] = __fmul_rn(plain_quotient(gate[i], divisor), up[i]);
  }
  if (is_plain) return;
#pragma unroll
  for (int32_t i = 0; i < count; ++i) result[i] = swiglu(gate[i], up[i]);
}

}

#endif
