#pragma once

#include <cstdint>

#include "native/kernels/rows/parts.hpp"
#include "native/kernels/rows/shape.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/peer_store.hpp"

namespace glm::kernels::rows {

constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
constexpr int32_t kMaxWarps = kMaxThreads / kWarpThreads;

struct RowMeasure {
  float square_sum;
  uint32_t largest_bits;
};

struct MeasureBuffer {
  RowMeasure warps[2][kMaxWarps];
  uint64_t complete;
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

template <int32_t parts>
__device__ inline int32_t warps_of_row() {
  return row_threads<parts>() / kWarpThreads;
}

template <int32_t parts>
__device__ inline void begin_measure(MeasureBuffer& buffer) {
  if constexpr (parts > 1) {
    if (threadIdx.x == 0) {
      ptx::barrier_init(&buffer.complete, 1);
      ptx::barrier_init_fence();
      ptx::barrier_expect(&buffer.complete,
                          warps_of_row<parts>() * sizeof(RowMeasure));
    }
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

template <int32_t parts>
__device__ inline void share_with_parts(const RowMeasure& of_warp,
                                        const RowMeasure& place,
                                        MeasureBuffer& buffer) {
  const uint32_t part = threadIdx.x % kWarpThreads;
  if (part < parts)
    ptx::store_to_peer(
        ptx::peer_address(&place, part),
        make_uint2(__float_as_uint(of_warp.square_sum), of_warp.largest_bits),
        ptx::peer_address(&buffer.complete, part));
  ptx::wait_for_peers(&buffer.complete, 0);
}

template <int32_t parts = 1>
__device__ inline RowMeasure row_measure(RowMeasure own, MeasureBuffer& buffer,
                                         int32_t parity) {
  const int32_t lane = threadIdx.x % kWarpThreads;
  const int32_t num_warps = warps_of_row<parts>();
  own = warp_measure(own);
  if (num_warps == 1) return own;
  RowMeasure& place = buffer.warps[parity][row_thread<parts>() / kWarpThreads];
  if constexpr (parts > 1) {
    share_with_parts<parts>(own, place, buffer);
  } else {
    if (lane == 0) place = own;
    __syncthreads();
  }
  RowMeasure whole = {0.0f, 0u};
  if (lane < num_warps) whole = buffer.warps[parity][lane];
  return warp_measure(whole);
}

}
