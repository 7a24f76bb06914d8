#ifndef GLM_KERNELS_SAMPLE_LOGPROBS_HPP
#define GLM_KERNELS_SAMPLE_LOGPROBS_HPP

#include <cstdint>

#include "native/kernels/sample/threshold.hpp"

namespace glm::kernels::sampling {

constexpr int32_t kBestSlots =
    (kRowBlocks * GLM_MAX_LOGPROBS + kWarpThreads - 1) / kWarpThreads;

struct RowOutputs {
  int32_t* token_id;
  int32_t* is_finite;
  float* logprob;
  int32_t* top_ids;
  float* top_logprobs;
};

__device__ inline double log_sum_exp(ClusterRow& row, float largest,
                                     int32_t vocab_size) {
  float unit = mass_unit(vocab_size);
  MassWeight weight = {unit, 1.0f};
  uint64_t own = 0;
  for_each_token(row.slice(),
                 [&](int32_t, float logit) { own += weight(logit - largest); });
  double sum = static_cast<double>(row.sum_of(own)) / unit;
  return static_cast<double>(largest) + log(sum);
}

__device__ inline uint64_t best_below(const Slice& slice, uint64_t limit) {
  uint64_t best = 0;
  for_each_token(slice, [&](int32_t token, float logit) {
    uint64_t rank = ranked(logit, token);
    if (rank < limit && rank > best) best = rank;
  });
  return best;
}

__device__ inline void find_best(ClusterRow& row, int32_t wanted) {
  uint64_t own = best_below(row.slice(), kNotFinite);
  for (int32_t i = 0; i < wanted; ++i) {
    uint64_t best = row.largest_in_block(own);
    if (threadIdx.x == 0) row.shared().best[i] = best;
    if (own == best && best != 0) own = best_below(row.slice(), best);
  }
}

class MergedBest {
 public:
  __device__ MergedBest(ClusterRow& row, int32_t wanted) {
#pragma unroll
    for (int32_t i = 0; i < kBestSlots; ++i) {
      int32_t slot = i * kWarpThreads + row.lane();
      int32_t rank = slot / GLM_MAX_LOGPROBS;
      int32_t place = slot % GLM_MAX_LOGPROBS;
      bool is_known = rank < kRowBlocks && place < wanted;
      ranks_[i] = is_known ? at_peer(row.shared().best, rank)[place] : 0;
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

__device__ inline void write_best(const RowOutputs& outputs, int32_t place,
                                  uint64_t rank, double normaliser) {
  float value = rank == 0 ? __uint_as_float(kInfinityBits | kZeroKey)
                          : static_cast<float>(value_of(rank) - normaliser);
  if (threadIdx.x != 0) return;
  if (outputs.top_ids != nullptr) outputs.top_ids[place] = token_of(rank);
  if (outputs.top_logprobs != nullptr) outputs.top_logprobs[place] = value;
}

__device__ inline void write_no_logprobs(const RowOutputs& outputs) {
  if (threadIdx.x == 0 && outputs.logprob != nullptr)
    *outputs.logprob = __uint_as_float(kInfinityBits | kZeroKey);
  for (int32_t i = 0; i < GLM_MAX_LOGPROBS; ++i) write_best(outputs, i, 0, 0.0);
}

__device__ inline void write_logprobs(ClusterRow& row,
                                      const RowOutputs& outputs, int32_t token,
                                      int32_t wanted, double normaliser) {
  if (threadIdx.x == 0 && outputs.logprob != nullptr && token >= 0)
    *outputs.logprob = static_cast<float>(row.value_at(token) - normaliser);
  if (threadIdx.x == 0 && outputs.logprob != nullptr && token < 0)
    *outputs.logprob = __uint_as_float(kInfinityBits | kZeroKey);
  MergedBest best(row, wanted);
  for (int32_t i = 0; i < GLM_MAX_LOGPROBS; ++i)
    write_best(outputs, i, i < wanted ? best.take() : 0, normaliser);
}

}

#endif
