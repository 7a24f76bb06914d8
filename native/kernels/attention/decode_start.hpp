#pragma once

#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_share.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_arrival.hpp"

namespace glm::kernels::decode {

template <typename S>
__device__ void init_barriers(Shared<S>& shared) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32 - 1;
  if (threadIdx.x % 32 != 0) return;
  for (int32_t i = warp; i < S::kStages; i += S::kThreads / 32 - 1) {
    ptx::barrier_init(&shared.full[i], 1);
    ptx::barrier_init(&shared.empty[i], ptx::kWarpArrivals);
  }
  if (warp < kQueryBuffers) {
    ptx::barrier_init(&shared.query_full[warp], ptx::kWarpArrivals);
    ptx::barrier_init(&shared.query_empty[warp],
                      S::kWarps * ptx::kWarpArrivals);
  }
  if (warp == kQueryBuffers) {
    ptx::barrier_init(&shared.merge_full, S::kWarps * ptx::kWarpArrivals);
    ptx::barrier_init(&shared.merge_empty, kMergeThreads);
    ptx::barrier_init(&shared.last_full, S::kWarps * ptx::kWarpArrivals);
  }
  ptx::barrier_init_fence();
}

template <typename S>
__device__ void clear_queries(Shared<S>& shared) {
  auto* query = reinterpret_cast<uint4*>(shared.query);
  for (uint32_t i = threadIdx.x; i < sizeof shared.query / 16; i += S::kThreads)
    query[i] = make_uint4(0, 0, 0, 0);
  ptx::proxy_fence();
}

__device__ inline Segment segment_of(const Arguments& args, int32_t number) {
  Segment segment = {};
  if (number < args.num_segments) {
    segment.context_length = args.context_length[number];
    segment.table_row = args.table_row[number];
  }
  return segment;
}

template <typename S>
__device__ void count_blocks(const Arguments& args, Shared<S>& shared,
                             Segment segment) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t number = static_cast<int32_t>(threadIdx.x);
       number - lane < args.num_segments; number += S::kThreads) {
    if (number >= S::kThreads) segment = segment_of(args, number);
    count_group(args, shared, number, segment, 0);
  }
}

template <typename S>
__device__ void prepare(const Arguments& args, Shared<S>& shared) {
  const Segment segment = segment_of(args, static_cast<int32_t>(threadIdx.x));
  if (threadIdx.x >= 32) init_barriers<S>(shared);
  if (args.head_dim < S::kDims) clear_queries<S>(shared);
  count_blocks<S>(args, shared, segment);
  if (args.num_segments > 32)
    __syncthreads();
  else
    __syncwarp();
  if (threadIdx.x < 32) find_ends<S>(args, shared);
  __syncthreads();
}

}
