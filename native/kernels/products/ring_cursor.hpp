#pragma once

#include <cstdint>

namespace glm::kernels::products {

struct RingCursor {
  int32_t stage = 0;
  uint32_t parity = 0;

  __device__ void advance(int32_t num_stages) {
    if (++stage == num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}
