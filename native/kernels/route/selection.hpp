#pragma once

#include <cstdint>

#include "native/kernels/route/parameters.hpp"

namespace glm::kernels::routing {

constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;
constexpr float kSmallestSum = 1e-20f;

__device__ inline uint32_t ordered_bits(float value) {
  uint32_t bits = __float_as_uint(value);
  uint32_t ordered = bits ^ ((bits >> 31) ? 0xFFFFFFFFu : 0x80000000u);
  return max(ordered, 1u);
}

__device__ inline float sigmoid(float value) {
  return 1.0f / (1.0f + expf(-value));
}

template <int32_t lane_experts>
struct Candidates {
  uint32_t key[lane_experts];
  int32_t expert[lane_experts];
};

template <int32_t lane_experts>
__device__ inline void order_pair(Candidates<lane_experts>& own, int32_t low,
                                  int32_t high) {
  bool swaps =
      own.key[high] > own.key[low] ||
      (own.key[high] == own.key[low] && own.expert[high] < own.expert[low]);
  uint32_t key = own.key[low];
  int32_t expert = own.expert[low];
  own.key[low] = swaps ? own.key[high] : key;
  own.expert[low] = swaps ? own.expert[high] : expert;
  own.key[high] = swaps ? key : own.key[high];
  own.expert[high] = swaps ? expert : own.expert[high];
}

template <int32_t first, int32_t step, int32_t lane_experts>
__device__ inline void merge_halves(Candidates<lane_experts>& own) {
  if constexpr (step == 1) {
    order_pair(own, first, first + 1);
  } else if constexpr (step == 2) {
    order_pair(own, first, first + 2);
    order_pair(own, first + 1, first + 3);
    order_pair(own, first + 1, first + 2);
  } else {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) order_pair(own, first + i, first + i + 4);
    order_pair(own, first + 2, first + 4);
    order_pair(own, first + 3, first + 5);
#pragma unroll
    for (int32_t i = 1; i < 7; i += 2)
      order_pair(own, first + i, first + i + 1);
  }
}

template <int32_t lane_experts>
__device__ inline void sort_candidates(Candidates<lane_experts>& own) {
  merge_halves<0, 1>(own);
  merge_halves<2, 1>(own);
  merge_halves<0, 2>(own);
  if constexpr (lane_experts == 8) {
    merge_halves<4, 1>(own);
    merge_halves<6, 1>(own);
    merge_halves<4, 2>(own);
    merge_halves<0, 4>(own);
  }
}

template <int32_t lane_experts>
__device__ inline void take_first(Candidates<lane_experts>& own, bool takes) {
#pragma unroll
  for (int32_t i = 0; i < lane_experts; ++i) {
    bool is_last = i + 1 == lane_experts;
    own.key[i] =
        takes ? (is_last ? 0 : own.key[is_last ? i : i + 1]) : own.key[i];
    own.expert[i] = takes ? own.expert[is_last ? i : i + 1] : own.expert[i];
  }
}

struct Quad {
  float at[4];
};

__device__ inline float4 sum_of(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

template <int32_t num_parts, typename Stride>
__device__ inline Quad summed_logits(const float* received,
                                     Stride part_stride) {
  float4 parts[num_parts];
#pragma unroll
  for (int32_t part = 0; part < num_parts; ++part)
    parts[part] =
        *reinterpret_cast<const float4*>(received + part * part_stride);
#pragma unroll
  for (int32_t step = 1; step < num_parts; step *= 2)
#pragma unroll
    for (int32_t part = 0; part < num_parts; part += 2 * step)
      parts[part] = sum_of(parts[part], parts[part + step]);
  return {{parts[0].x, parts[0].y, parts[0].z, parts[0].w}};
}

template <int32_t num_parts, int32_t lane_experts, typename Stride>
__device__ inline Candidates<lane_experts> score_experts(
    const RouteParameters& p, const float* bias, const float* received,
    Stride part_stride, float* kept, int32_t lane) {
  Candidates<lane_experts> own;
#pragma unroll
  for (int32_t quad = 0; quad < lane_experts; quad += 4) {
    int32_t begin = lane * lane_experts + quad;
    bool is_inside = begin < p.num_experts;
    Quad scores = {};
    if (is_inside)
      scores = summed_logits<num_parts>(received + begin, part_stride);
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      int32_t expert = begin + i;
      scores.at[i] = sigmoid(scores.at[i]);
      own.expert[quad + i] = expert;
      own.key[quad + i] = expert < p.num_experts
                              ? ordered_bits(scores.at[i] + bias[expert])
                              : 0;
    }
    if (is_inside)
      *reinterpret_cast<float4*>(kept + begin) =
          make_float4(scores.at[0], scores.at[1], scores.at[2], scores.at[3]);
  }
  return own;
}

template <int32_t lane_experts>
__device__ inline void choose_experts(const RouteParameters& p,
                                      Candidates<lane_experts>& own,
                                      int32_t* chosen, int32_t lane) {
  sort_candidates(own);
  uint32_t lower_lanes = (1u << lane) - 1;
#pragma unroll 1
  for (int32_t k = 0; k < p.top_k; ++k) {
    uint32_t best = __reduce_max_sync(kWholeWarp, own.key[0]);
    bool is_best = own.key[0] == best;
    uint32_t best_lanes = __ballot_sync(kWholeWarp, is_best);
    bool takes = is_best && (best_lanes & lower_lanes) == 0;
    if (takes) chosen[k] = own.expert[0];
    take_first(own, takes);
  }
  __syncwarp();
}

__device__ inline void store_routes(const RouteParameters& p, int32_t token,
                                    const float* scores, const int32_t* chosen,
                                    int32_t lane) {
  int64_t row = int64_t{token} * (p.num_shared + p.top_k);
  int32_t expert = lane < p.top_k ? chosen[lane] : 0;
  float score = scores[expert];
  float sum = 0.0f;
  for (int32_t k = 0; k < p.top_k; ++k)
    sum += __shfl_sync(kWholeWarp, score, k);
  if (lane < p.num_shared) {
    p.expert_ids[row + lane] = p.num_experts + lane;
    p.expert_weights[row + lane] = 1.0f;
  }
  if (lane >= p.top_k) return;
  float weight = p.normalise ? score / (sum + kSmallestSum) : score;
  int64_t index = row + p.num_shared + lane;
  p.expert_ids[index] = expert;
  p.expert_weights[index] = weight * p.scaling_factor;
}

template <int32_t num_parts, int32_t lane_experts, typename Stride>
__device__ inline void select_experts(const RouteParameters& p, int32_t token,
                                      const float* bias, const float* received,
                                      Stride part_stride, float* scores,
                                      int32_t* chosen) {
  int32_t lane = threadIdx.x % kWarpThreads;
  Candidates<lane_experts> own = score_experts<num_parts, lane_experts>(
      p, bias, received, part_stride, scores, lane);
  choose_experts(p, own, chosen, lane);
  store_routes(p, token, scores, chosen, lane);
}

}
