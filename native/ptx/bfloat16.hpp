#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace glm::ptx {

__device__ inline float2 floats_of_bfloat16s(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16),
                     __uint_as_float(pair & 0xFFFF0000u));
}

}
