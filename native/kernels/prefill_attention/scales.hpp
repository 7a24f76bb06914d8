#pragma once

#include "native/kernels/prefill_attention/schedule.hpp"

namespace glm::kernels::prefill_attention_detail {

__device__ inline float head_scale(const Parameters& parameters,
                                   const float* scales, const Item& item) {
  if (scales == nullptr) return 1.0f;
  return scales[int64_t{parameters.layer} * parameters.cache.num_kv_heads +
                item.kv_head];
}

template <typename Tile>
__device__ inline float exponent_factor(const Parameters& parameters,
                                        const Item& item) {
  if constexpr (Tile::kHasScales)
    return __fmul_rn(parameters.exponent_factor,
                     head_scale(parameters, parameters.cache.key_scale, item));
  else
    return parameters.exponent_factor;
}

template <typename Tile>
__device__ inline float output_factor(const Parameters& parameters,
                                      const Item& item, float sum) {
  const float inverse = __frcp_rn(sum);
  if constexpr (Tile::kHasScales)
    return __fmul_rn(
        inverse, head_scale(parameters, parameters.cache.value_scale, item));
  else
    return inverse;
}

}
