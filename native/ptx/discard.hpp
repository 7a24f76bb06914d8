#pragma once

#include <cstdint>

namespace glm::ptx {

__device__ inline void discard_line(const void* line) {
  asm volatile("discard.global.L2 [%0], 128;" ::"l"(line) : "memory");
}

}
