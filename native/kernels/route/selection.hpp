#ifndef GLM_KERNELS_ROUTE_SELECTION_HPP
#define GLM_KERNELS_ROUTE_SELECTION_HPP

#include <cstdint>

#include "native/kernels/route/parameters.hpp"

namespace glm::kernels::routing {

constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;
constexpr int32_t kLaneExperts = kMaxExperts / kWarpThreads;
constexpr float kSmallestSum = 1e-20f;

__device__ inline uint32_t ordered_bits(float value) {
  uint32_t bits = __float_as_uint(value);
  uint32_t ordered = bits ^ ((bits >> 31) ? 0xFFFFFFFFu : 0x80000000u);
  return max(ordered, 1u);
}

__device__ inline float sigmoid(float value) {
  return 1.0f / (1.0f + expf(-value));
}

struct LaneScores {
  float score[kLaneExperts];
  uint32_t rank_bits[kLaneExperts];
};

__device__ inline float summed_logit(const float* received, int32_t rank_stride,
                                     int32_t expert) {
  float logit = 0.0f;
#pragma unroll
  for (int32_t rank = 0; rank < kRanks; ++rank)
    logit += received[rank * rank_stride + expert];
  return logit;
}

__device__ inline LaneScores score_experts(const RouteParameters& p,
                                           const float* bias,
                                           const float* received,
                                           int32_t rank_stride, int32_t lane) {
  LaneScores lanes;
#pragma unroll
  for (int32_t i = 0; i < kLaneExperts; ++i) {
    int32_t expert = i * kWarpThreads + lane;
    bool is_expert = expert < p.num_experts;
    float logit = summed_logit(received, rank_stride, is_expert ? expert : 0);
    lanes.score[i] = sigmoid(logit);
    lanes.rank_bits[i] =
        is_expert ? ordered_bits(lanes.score[i] + bias[expert]) : 0;
  }
  return lanes;
}

__device__ inline int32_t take_best(LaneScores& lanes, int32_t lane) {
  uint32_t own = 0;
#pragma unroll
  for (int32_t i = 0; i < kLaneExperts; ++i) own = max(own, lanes.rank_bits[i]);
  uint32_t best = __reduce_max_sync(kWholeWarp, own);
  uint32_t expert = kMaxExperts;
#pragma unroll
  for (int32_t i = kLaneExperts - 1; i >= 0; --i)
    if (lanes.rank_bits[i] == best) expert = i * kWarpThreads + lane;
  expert = __reduce_min_sync(kWholeWarp, expert);
#pragma unroll
  for (int32_t i = 0; i < kLaneExperts; ++i)
    if (expert == i * kWarpThreads + lane) lanes.rank_bits[i] = 0;
  return static_cast<int32_t>(expert);
}

__device__ inline float score_of(const LaneScores& lanes, int32_t expert,
                                 int32_t lane) {
  float score = 0.0f;
  int32_t own = expert - lane;
#pragma unroll
  for (int32_t i = 0; i < kLaneExperts; ++i)
    score = own == i * kWarpThreads ? lanes.score[i] : score;
  return __shfl_sync(kWholeWarp, score, expert % kWarpThreads);
}

__device__ inline void select_experts(const RouteParameters& p, int32_t token,
                                      LaneScores& lanes, int32_t lane) {
  float sum = 0.0f;
  float own_score = 0.0f;
  int32_t own_expert = 0;
  for (int32_t k = 0; k < p.top_k; ++k) {
    int32_t expert = take_best(lanes, lane);
    float score = score_of(lanes, expert, lane);
    sum += score;
    if (lane == k) {
      own_score = score;
      own_expert = expert;
    }
  }
  int64_t row = int64_t{token} * (p.num_shared + p.top_k);
  if (lane < p.num_shared) {
    p.expert_ids[row + lane] = p.num_experts + lane;
    p.expert_weights[row + lane] = 1.0f;
  }
  if (lane >= p.top_k) return;
  float weight = p.normalise ? own_score / (sum + kSmallestSum) : own_score;
  int64_t index = row + p.num_shared + lane;
  p.expert_ids[index] = own_expert;
  p.expert_weights[index] = weight * p.scaling_factor;
}

}

#endif
