#ifndef GLM_KERNELS_EXPERTS_EXPERT_LISTS_HPP
#define GLM_KERNELS_EXPERTS_EXPERT_LISTS_HPP

#include <cstdint>

#include "native/kernels/experts/parameters.hpp"
#include "native/kernels/experts/shared_state.hpp"

namespace glm::kernels::mixture {

struct WarpRange {
  int32_t begin;
  int32_t end;
};

__device__ inline WarpRange warp_range(int32_t num_assignments, int32_t warp) {
  int32_t share = static_cast<int32_t>(
      round_up(ceil_divide(num_assignments, kProductWarps), kWarpThreads));
  return {min(num_assignments, warp * share),
          min(num_assignments, (warp + 1) * share)};
}

__device__ inline uint32_t equal_lanes(uint32_t expert) {
  return __match_any_sync(kWholeWarp, expert);
}

__device__ inline void count_assignments(const ExpertsParameters& p,
                                         SortBuffer& buffer, int32_t warp,
                                         int32_t lane) {
  for (int32_t e = lane; e < kMaxLocalExperts; e += kWarpThreads)
    buffer.count[warp][e] = 0;
  __syncwarp();
  WarpRange range = warp_range(p.num_assignments(), warp);
  for (int32_t base = range.begin; base < range.end; base += kWarpThreads) {
    uint32_t expert = kMaxLocalExperts;
    if (base + lane < range.end)
      expert = static_cast<uint32_t>(__ldcg(p.expert_ids + base + lane) -
                                     p.expert_begin);
    if (expert >= static_cast<uint32_t>(p.num_local_experts))
      expert = kMaxLocalExperts;
    if (base + lane < range.end) buffer.expert[base + lane] = expert;
    uint32_t same = equal_lanes(expert);
    if (expert < kMaxLocalExperts && lane == __ffs(same) - 1)
      buffer.count[warp][expert] += __popc(same);
    __syncwarp();
  }
}

__device__ inline uint32_t inclusive_warp_sum(uint32_t value, int32_t lane) {
#pragma unroll
  for (int32_t distance = 1; distance < kWarpThreads; distance *= 2) {
    uint32_t lower = __shfl_up_sync(kWholeWarp, value, distance);
    if (lane >= distance) value += lower;
  }
  return value;
}

__device__ inline void place_lists(SharedState& shared, int32_t expert,
                                   int32_t begin, int32_t count,
                                   int32_t first_list) {
  for (int32_t done = 0; done < count; done += kMaxListTokens) {
    ExpertList list = {
        static_cast<uint16_t>(expert), static_cast<uint16_t>(begin + done),
        static_cast<uint16_t>(min(kMaxListTokens, count - done)), 0};
    shared.lists[first_list + done / kMaxListTokens] = list;
  }
}

__device__ inline void scan_experts(SharedState& shared, SortBuffer& buffer,
                                    int32_t expert) {
  int32_t warp = expert / kWarpThreads;
  int32_t lane = expert % kWarpThreads;
  uint32_t count = 0;
  for (int32_t i = 0; i < kProductWarps; ++i) count += buffer.count[i][expert];
  uint32_t packed = count | (count + kMaxListTokens - 1) / kMaxListTokens << 16;
  uint32_t inclusive = inclusive_warp_sum(packed, lane);
  if (lane == kWarpThreads - 1) shared.warp_totals[warp] = inclusive;
  asm volatile("bar.sync 1, %0;" ::"n"(kProductThreads) : "memory");
  uint32_t before = inclusive - packed;
  for (int32_t i = 0; i < warp; ++i) before += shared.warp_totals[i];
  int32_t begin = before & 0xFFFF;
  place_lists(shared, expert, begin, count, before >> 16);
  if (expert == kMaxLocalExperts - 1)
    shared.num_lists = (before + packed) >> 16;
  for (int32_t i = 0; i < kProductWarps; ++i) {
    uint16_t own = buffer.count[i][expert];
    buffer.count[i][expert] = static_cast<uint16_t>(begin);
    begin += own;
  }
}

__device__ inline void order_assignments(const ExpertsParameters& p,
                                         SortBuffer& buffer, uint16_t* order,
                                         int32_t warp, int32_t lane) {
  WarpRange range = warp_range(p.num_assignments(), warp);
  for (int32_t base = range.begin; base < range.end; base += kWarpThreads) {
    uint32_t expert =
        base + lane < range.end ? buffer.expert[base + lane] : kMaxLocalExperts;
    uint32_t same = equal_lanes(expert);
    int32_t begin = expert < kMaxLocalExperts ? buffer.count[warp][expert] : 0;
    __syncwarp();
    if (expert < kMaxLocalExperts) {
      uint32_t lower = same & ((1u << lane) - 1);
      order[begin + __popc(lower)] = static_cast<uint16_t>(base + lane);
      if (lower == 0)
        buffer.count[warp][expert] =
            static_cast<uint16_t>(begin + __popc(same));
    }
    __syncwarp();
  }
}

__device__ inline void build_lists(const ExpertsParameters& p,
                                   SharedState& shared, SortBuffer& buffer,
                                   uint16_t* order) {
  static_assert(kMaxLocalExperts == kProductThreads);
  int32_t warp = threadIdx.x / kWarpThreads;
  int32_t lane = threadIdx.x % kWarpThreads;
  if (warp < kProductWarps) count_assignments(p, buffer, warp, lane);
  __syncthreads();
  if (warp < kProductWarps) scan_experts(shared, buffer, threadIdx.x);
  __syncthreads();
  if (warp < kProductWarps) order_assignments(p, buffer, order, warp, lane);
}

}

#endif
