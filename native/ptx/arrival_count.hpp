#pragma once

#include <cstdint>

namespace glm::ptx {

__device__ inline uint32_t add_release_acquire(uint32_t* counter,
                                               uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(value)
               : "memory");
  return before;
}

}
