#pragma once

#include <cstdint>

#include "native/kernels/sample/adjust.hpp"

namespace glm::kernels::sampling {

class Greatest {
 public:
  __device__ void consider(int32_t token, float value) {
    if (value <= value_) return;
    value_ = value;
    token_ = token;
  }

  __device__ void consider(int32_t token, const float4& quad, int32_t end) {
    consider(token, quad.x);
    if (token + 1 < end) consider(token + 1, quad.y);
    if (token + 2 < end) consider(token + 2, quad.z);
    if (token + 3 < end) consider(token + 3, quad.w);
  }

  __device__ uint64_t rank() const {
    return token_ < 0 ? 0 : ranked(value_, token_);
  }

 private:
  float value_ = minus_infinity();
  int32_t token_ = -1;
};

__device__ inline bool is_greedy(const RowControls& controls) {
  return controls.temperature == 0.0f && controls.num_logprobs < 0 &&
         controls.forced_token < 0 && controls.bias_begin >= controls.bias_end;
}

template <int32_t in_flight, typename Keep>
__device__ uint64_t greatest_rank(const GivenRow& given,
                                  const RowControls& controls, const Part& part,
                                  Keep keep) {
  Greatest greatest;
  int32_t end = part.begin + part.count;
  bool all_finite =
      read_part<in_flight>(given, controls, part, [&](int32_t at, float4 quad) {
        if (controls.mask != nullptr)
          quad = masked_quad(controls.mask, quad, at);
        keep(at, quad);
        greatest.consider(at, quad, end);
      });
  return all_finite ? greatest.rank() : kNotFinite;
}

}
