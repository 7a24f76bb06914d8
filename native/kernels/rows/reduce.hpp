#ifndef GLM_KERNELS_ROWS_REDUCE_HPP
#define GLM_KERNELS_ROWS_REDUCE_HPP

#include <cstdint>

#include "native/kernels/rows/shape.hpp"

namespace glm::kernels::rows {

constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
constexpr int32_t kMaxWarps = kMaxThreads / kWarpThreads;

struct RowMeasure {
  float square_sum;
  uint32_t largest_bits;
};

struct MeasureBuffer {
  RowMeasure warps[2][kMaxWarps];
};

__device__ inline uint32_t magnitude_bits(float value) {
  return __float_as_uint(value) & 0x7FFFFFFFu;
}

__device__ inline RowMeasure warp_measure(RowMeasure own) {
  own.largest_bits = __reduce_max_sync(kAllLanes, own.largest_bits);
#pragma unroll
  for (int32_t distance = kWarpThreads / 2; distance > 0; distance /= 2)
    own.square_sum += __shfl_xor_sync(kAllLanes, own.square_sum, distance);
  return own;
}

__device__ inline RowMeasure block_measure(RowMeasure own,
                                           MeasureBuffer& buffer,
                                           int32_t parity) {
  int32_t lane = threadIdx.x % kWarpThreads;
  int32_t num_warps = blockDim.x / kWarpThreads;
  own = warp_measure(own);
  if (num_warps == 1) return own;
  if (lane == 0) buffer.warps[parity][threadIdx.x / kWarpThreads] = own;
  __syncthreads();
  RowMeasure other = {0.0f, 0u};
  if (lane < num_warps) other = buffer.warps[parity][lane];
  return warp_measure(other);
}

}

#endif
