#pragma once

#include <cstdint>

#include "native/kernels/sample/adjust.hpp"
#include "native/kernels/sample/slice.hpp"

namespace glm::kernels::sampling {

constexpr int32_t kSumBits = 62;
constexpr int32_t kBestSlots =
    (kRowBlocks * GLM_MAX_LOGPROBS + kWarpThreads - 1) / kWarpThreads;

struct RowOutputs {
  int32_t* token_id;
  int32_t* is_finite;
  float* logprob;
  int32_t* top_ids;
  float* top_logprobs;
};

__device__ inline double log_sum_exp(Row& row, float largest) {
  int32_t bits = kSumBits - (kWarpThreads - __clz(row.vocab_size));
  float unit = static_cast<float>(uint64_t{1} << bits);
  uint64_t own = 0;
  row.for_each_token([&](int32_t, float logit) {
    own += __float2ull_rn(expf(logit - largest) * unit);
  });
  double sum = static_cast<double>(row.exchange.sum_of(own)) / unit;
  return static_cast<double>(largest) + log(sum);
}

__device__ inline void start_search(BestSearch& search, uint64_t own) {
  uint64_t other = __shfl_xor_sync(kAllLanes, own, 1);
  if (threadIdx.x % 2 == 0)
    search.groups[threadIdx.x / 2] = own > other ? own : other;
  if (threadIdx.x < GLM_MAX_LOGPROBS) search.best[threadIdx.x] = 0;
  if (threadIdx.x == 0) search.threshold = 1;
  if (threadIdx.x == 0) search.num_candidates = 0;
  __syncthreads();
}

__device__ inline int32_t num_greater(const uint64_t* ranks, int32_t count,
                                      uint64_t own) {
  int32_t greater = 0;
  for (int32_t i = 0; i < count; ++i) greater += ranks[i] > own;
  return greater;
}

__device__ inline void find_search_threshold(BestSearch& search,
                                             int32_t wanted) {
  if (threadIdx.x < kGroups) {
    uint64_t own = search.groups[threadIdx.x];
    if (own != 0 && num_greater(search.groups, kGroups, own) == wanted - 1)
      search.threshold = own;
  }
  __syncthreads();
}

__device__ inline void find_best(Row& row, uint64_t own, int32_t wanted) {
  BestSearch& search = row.shared.search;
  uint64_t* candidates = reinterpret_cast<uint64_t*>(row.shared.bins);
  start_search(search, own);
  if (wanted > 0) {
    find_search_threshold(search, wanted);
    uint64_t threshold = search.threshold;
    row.for_each_token([&](int32_t token, float logit) {
      uint64_t rank = ranked(logit, token);
      if (rank >= threshold)
        candidates[atomicAdd(&search.num_candidates, 1u)] = rank;
    });
    __syncthreads();
    int32_t count = static_cast<int32_t>(search.num_candidates);
    for (int32_t i = threadIdx.x; i < count; i += kThreads) {
      int32_t place = num_greater(candidates, count, candidates[i]);
      if (place < wanted) search.best[place] = candidates[i];
    }
  }
  cluster_barrier();
}

class MergedBest {
 public:
  __device__ MergedBest(Row& row, int32_t wanted) {
#pragma unroll
    for (int32_t i = 0; i < kBestSlots; ++i) {
      int32_t slot = i * kWarpThreads + lane();
      int32_t rank = slot / GLM_MAX_LOGPROBS;
      int32_t place = slot % GLM_MAX_LOGPROBS;
      bool is_known = rank < kRowBlocks && place < wanted;
      ranks_[i] = is_known ? at_peer(row.shared.search.best, rank)[place] : 0;
    }
  }

  __device__ uint64_t take() {
    uint64_t own = 0;
#pragma unroll
    for (int32_t i = 0; i < kBestSlots; ++i) own = max(own, ranks_[i]);
    uint64_t best = warp_largest(own);
#pragma unroll
    for (int32_t i = 0; i < kBestSlots; ++i)
      if (ranks_[i] == best) ranks_[i] = 0;
    return best;
  }

 private:
  uint64_t ranks_[kBestSlots];
};

__device__ inline void write_logprob(const RowOutputs& outputs, float value) {
  if (threadIdx.x == 0 && outputs.logprob != nullptr) *outputs.logprob = value;
}

__device__ inline void write_place(const RowOutputs& outputs, int32_t place,
                                   uint64_t rank, double normaliser) {
  float value = rank == 0 ? minus_infinity()
                          : static_cast<float>(value_of(rank) - normaliser);
  if (threadIdx.x != 0) return;
  if (outputs.top_ids != nullptr) outputs.top_ids[place] = token_of(rank);
  if (outputs.top_logprobs != nullptr) outputs.top_logprobs[place] = value;
}

__device__ inline void write_best(Row& row, const RowOutputs& outputs,
                                  int32_t wanted, double normaliser) {
  MergedBest best(row, wanted);
  for (int32_t i = 0; i < GLM_MAX_LOGPROBS; ++i)
    write_place(outputs, i, i < wanted ? best.take() : 0, normaliser);
}

__device__ inline void write_no_logprobs(const RowOutputs& outputs) {
  write_logprob(outputs, minus_infinity());
  int32_t place = threadIdx.x;
  if (place >= GLM_MAX_LOGPROBS) return;
  if (outputs.top_ids != nullptr) outputs.top_ids[place] = -1;
  if (outputs.top_logprobs != nullptr)
    outputs.top_logprobs[place] = minus_infinity();
}

}
