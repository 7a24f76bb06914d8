#ifndef GLM_PTX_GRID_BARRIER_HPP
#define GLM_PTX_GRID_BARRIER_HPP

#include <cstdint>

namespace glm::ptx {

__device__ inline uint32_t load_acquire(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(word)
               : "memory");
  return value;
}

__device__ inline void meet_grid(uint32_t* counter_and_round,
                                 uint32_t num_blocks) {
  uint32_t* counter = counter_and_round;
  uint32_t* round = counter_and_round + 1;
  const uint32_t before = load_acquire(round);
  uint32_t arrived;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(arrived)
               : "l"(counter)
               : "memory");
  if (arrived + 1 == num_blocks) {
    *counter = 0;
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(round),
                 "r"(before + 1)
                 : "memory");
    return;
  }
  while (load_acquire(round) == before) {
  }
}

}

#endif
