#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace glm::collectives {

__device__ inline uint32_t with_canonical_nans(uint32_t pair) {
  uint32_t same;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(same) : "r"(pair), "r"(0x80008000u));
  return same;
}

__device__ inline uint2 with_canonical_nans(const uint2& words) {
  return make_uint2(with_canonical_nans(words.x), with_canonical_nans(words.y));
}

__device__ inline uint4 with_canonical_nans(const uint4& words) {
  return make_uint4(with_canonical_nans(words.x), with_canonical_nans(words.y),
                    with_canonical_nans(words.z), with_canonical_nans(words.w));
}

}
