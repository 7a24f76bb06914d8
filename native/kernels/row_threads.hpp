#pragma once

#include <cstdint>

#include "native/base/cuda.hpp"
#include "native/kernels/layout.hpp"

namespace glm::kernels {

constexpr int32_t kRowThreads = 128;

__device__ inline int32_t own_row() {
  return static_cast<int32_t>(blockIdx.x * kRowThreads + threadIdx.x);
}

inline LaunchShape a_thread_each(int32_t num_rows) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(ceil_divide(num_rows, kRowThreads)));
  shape.block = dim3(kRowThreads);
  return shape;
}

}
