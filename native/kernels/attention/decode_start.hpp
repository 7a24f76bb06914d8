#ifndef GLM_KERNELS_ATTENTION_DECODE_START_HPP
#define GLM_KERNELS_ATTENTION_DECODE_START_HPP

#include "native/kernels/attention/decode_items.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_arrival.hpp"

namespace glm::kernels::decode {

template <typename S>
__device__ void init_barriers(Shared<S>& shared) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  if (threadIdx.x % 32 != 0) return;
  for (int32_t i = warp; i < S::kStages; i += S::kThreads / 32) {
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

template <typename S>
__device__ void count_chunks(const Arguments& args, Shared<S>& shared) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t number = static_cast<int32_t>(threadIdx.x);
       number - lane <= args.num_segments; number += S::kThreads) {
    Segment segment = {};
    if (number < args.num_segments) {
      segment.context_length = args.context_length[number];
      segment.table_row = args.table_row[number];
    }
    const int32_t own =
        number < args.num_segments ? num_chunks(segment.context_length) : 0;
    int32_t sum = own;
    for (int32_t step = 1; step < 32; step *= 2) {
      const int32_t before = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += before;
    }
    segment.first_chunk = sum - own;
    if (number <= args.num_segments) shared.segments[number] = segment;
    if (lane == 31) shared.warp_chunks[number / 32] = sum;
  }
}

template <typename S>
__device__ void add_chunks_before(const Arguments& args, Shared<S>& shared) {
  for (int32_t number = static_cast<int32_t>(threadIdx.x);
       number <= args.num_segments; number += S::kThreads) {
    int32_t before = 0;
    for (int32_t warp = 0; warp < number / 32; ++warp)
      before += shared.warp_chunks[warp];
    shared.segments[number].first_chunk += before;
  }
}

template <typename S>
__device__ void prepare(const Arguments& args, Shared<S>& shared) {
  count_chunks<S>(args, shared);
  init_barriers<S>(shared);
  clear_queries<S>(shared);
  __syncthreads();
  if (args.num_segments < 32) return;
  add_chunks_before<S>(args, shared);
  __syncthreads();
}

}

#endif
