#pragma once

#include <cstdint>

namespace glm::kernels::rows {

constexpr int32_t kPartsOfFewRows = 4;

template <int32_t parts>
__device__ inline int32_t cluster_of_block() {
  return static_cast<int32_t>(blockIdx.x) / parts;
}

template <int32_t parts>
__device__ inline int32_t num_clusters() {
  return static_cast<int32_t>(gridDim.x) / parts;
}

template <int32_t parts>
__device__ inline int32_t row_thread() {
  return static_cast<int32_t>(blockIdx.x % parts * blockDim.x + threadIdx.x);
}

template <int32_t parts>
__device__ inline int32_t row_threads() {
  return parts * static_cast<int32_t>(blockDim.x);
}

}
