#pragma once

#include <cstdint>

namespace glm::ptx {

__device__ inline void store_matrices_transposed(uint32_t shared,
                                                 const uint32_t (&values)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], "
      "{%1, %2, %3, %4};" ::"r"(shared),
      "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
      : "memory");
}

template <int32_t threads>
__device__ inline void named_barrier(int32_t id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(threads) : "memory");
}

}
