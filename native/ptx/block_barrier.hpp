#pragma once

#include <cstdint>

namespace glm::ptx {

__device__ inline void arrive_block(uint32_t num_threads) {
  asm volatile("bar.arrive 0, %0;" ::"r"(num_threads) : "memory");
}

template <int32_t barrier>
__device__ inline void meet_threads(uint32_t num_threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(barrier), "r"(num_threads) : "memory");
}

}
