#pragma once

#include <cstdint>

namespace glm::ptx {

__device__ inline uint32_t transpose_matrix(uint32_t value) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
               : "=r"(result)
               : "r"(value));
  return result;
}

}
