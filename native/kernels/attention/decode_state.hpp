#pragma once

#include "native/kernels/attention/decode_items.hpp"

namespace glm::kernels::decode {

template <typename S>
struct State {
  float sums[S::kTiles][4];
  float top[2];
  float total[2];

  __device__ void clear() {
#pragma unroll
    for (int32_t i = 0; i < S::kTiles * 4; ++i) sums[i / 4][i % 4] = 0.0f;
    top[0] = top[1] = -INFINITY;
    total[0] = total[1] = 0.0f;
  }
};

__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

}
