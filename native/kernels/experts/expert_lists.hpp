#pragma once

#include <cstdint>

#include "native/kernels/experts/parameters.hpp"
#include "native/kernels/experts/shared_state.hpp"

namespace glm::kernels::mixture {

constexpr int32_t kWordBits = 32;

template <int32_t max_columns>
constexpr int32_t kMostChoices =
    max_columns < kMaxListTokens ? max_columns * kMaxTopK : kMaxAssignments;

template <int32_t max_columns>
constexpr int32_t kRounds =
    (kMostChoices<max_columns> + kNumThreads - 1) / kNumThreads;

struct MemberBits {
  int32_t num_words;
  int32_t num_experts;
  uint32_t* words;
  uint16_t* before;

  __device__ explicit MemberBits(const Frame& frame)
      : num_words(static_cast<int32_t>(
            ceil_divide(frame.p.num_assignments(), kWordBits))),
        num_experts(frame.p.num_experts),
        words(reinterpret_cast<uint32_t*>(frame.ring.stages)),
        before(reinterpret_cast<uint16_t*>(words + num_words * num_experts)) {}

  static int64_t bytes(int64_t num_assignments, int64_t num_experts) {
    return ceil_divide(num_assignments, kWordBits) * num_experts *
           static_cast<int64_t>(sizeof(uint32_t) + sizeof(uint16_t));
  }
  __device__ void clear() const {
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < num_words * num_experts; i += kNumThreads)
      words[i] = 0;
  }
  __device__ bool has(int32_t expert) const {
    return static_cast<uint32_t>(expert) < static_cast<uint32_t>(num_experts);
  }
  __device__ int32_t place(int32_t index, int32_t expert) const {
    return index / kWordBits * num_experts + expert;
  }
  __device__ void mark(int32_t index, int32_t expert) const {
    atomicOr(words + place(index, expert), 1u << index % kWordBits);
  }
  __device__ int32_t count(int32_t expert) const {
    int32_t total = 0;
#pragma unroll 8
    for (int32_t word = 0; word < num_words; ++word) {
      int32_t own = __popc(words[word * num_experts + expert]);
      before[word * num_experts + expert] = static_cast<uint16_t>(total);
      total += own;
    }
    return total;
  }
  __device__ int32_t rank(int32_t index, int32_t expert) const {
    uint32_t lower = (1u << index % kWordBits) - 1;
    int32_t own = place(index, expert);
    return before[own] + __popc(words[own] & lower);
  }
};

template <int32_t num_rounds>
struct OwnExperts {
  int32_t expert[num_rounds];

  __device__ explicit OwnExperts(const ExpertsParameters& p) {
    int32_t num_assignments = p.num_assignments();
#pragma unroll
    for (int32_t round = 0; round < num_rounds; ++round) {
      expert[round] = -1;
      if (index_of(round) < num_assignments)
        expert[round] =
            p.local.index_of(__ldcg(p.expert_ids + index_of(round)));
    }
  }
  __device__ static int32_t index_of(int32_t round) {
    return round * kNumThreads + static_cast<int32_t>(threadIdx.x);
  }
  __device__ void mark(const MemberBits& bits) const {
#pragma unroll
    for (int32_t round = 0; round < num_rounds; ++round)
      if (bits.has(expert[round])) bits.mark(index_of(round), expert[round]);
  }
  __device__ void order(const MemberBits& bits, const uint16_t* begin,
                        uint16_t* order) const {
#pragma unroll
    for (int32_t round = 0; round < num_rounds; ++round)
      if (bits.has(expert[round]))
        order[begin[expert[round]] +
              bits.rank(index_of(round), expert[round])] =
            static_cast<uint16_t>(index_of(round));
  }
};

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
                                   int32_t first_list, int32_t most) {
#pragma unroll 1
  for (int32_t done = 0; done < count; done += most) {
    ExpertList list = {static_cast<uint16_t>(expert),
                       static_cast<uint16_t>(begin + done),
                       static_cast<uint16_t>(min(most, count - done)), 0};
    shared.lists[first_list + done / most] = list;
  }
}

__device__ inline void place_experts(const Frame& frame,
                                     const MemberBits& bits) {
  SharedState& shared = frame.shared;
  int32_t thread = threadIdx.x;
  int32_t warp = thread / kWarpThreads;
  int32_t lane = thread % kWarpThreads;
  int32_t expert = bits.num_experts - 1 - thread;
  uint32_t count = expert >= 0 ? bits.count(expert) : 0;
  uint32_t most = frame.list_tokens;
  uint32_t packed = count | (count + most - 1) / most << 16;
  uint32_t inclusive = inclusive_warp_sum(packed, lane);
  if (lane == kWarpThreads - 1) shared.warp_totals[warp] = inclusive;
  asm volatile("bar.sync 1, %0;" ::"n"(kProductThreads) : "memory");
  uint32_t before = inclusive - packed;
#pragma unroll 1
  for (int32_t i = 0; i < warp; ++i) before += shared.warp_totals[i];
  int32_t begin = before & 0xFFFF;
  if (expert >= 0) shared.list_begin[expert] = static_cast<uint16_t>(begin);
  place_lists(shared, expert, begin, count, before >> 16, most);
  if (thread == kProductThreads - 1) shared.num_lists = (before + packed) >> 16;
  if (thread == 0)
    shared.num_shared_lists =
        frame.p.local.shared_index >= 0 ? packed >> 16 : 0;
}

__device__ inline void begin_lists(const Frame& frame) {
  MemberBits(frame).clear();
  __syncthreads();
}

template <int32_t max_columns>
__device__ inline void build_lists(const Frame& frame) {
  static_assert(kMaxLocalExperts == kProductThreads);
  MemberBits bits(frame);
  uint32_t epoch = __ldcg(&frame.p.control->epoch);
  OwnExperts<kRounds<max_columns>> own(frame.p);
  if (threadIdx.x == 0) frame.shared.epoch = epoch;
  own.mark(bits);
  __syncthreads();
  if (threadIdx.x < kProductThreads) place_experts(frame, bits);
  __syncthreads();
  own.order(bits, frame.shared.list_begin, frame.order);
  ptx::proxy_fence();
  __syncthreads();
}

}
