#pragma once

#include <type_traits>

#include "native/kernels/attention/decode_bf16.hpp"
#include "native/kernels/attention/decode_f8.hpp"
#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_state.hpp"
#include "native/ptx/approximate.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_arrival.hpp"

namespace glm::kernels::decode {

template <typename S>
using Products = std::conditional_t<S::kIsF8, F8Products<S>, Bf16Products<S>>;

template <typename S>
using Scores = float[2 * S::kStepBlocks][4];

template <typename S>
__device__ __forceinline__ void scale_and_mask(Scores<S>& scores, float scale,
                                               int32_t num_valid) {
  const int32_t column = static_cast<int32_t>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int32_t i = 0; i < 8 * S::kStepBlocks; ++i) {
    const int32_t token = i / 4 * 8 + column + i % 2;
    float& score = scores[i / 4][i % 4];
    score = token < num_valid ? score * scale : -INFINITY;
  }
}

__device__ inline float over_row(float value, bool maximum) {
  for (int32_t step = 1; step < 4; step *= 2) {
    const float other = __shfl_xor_sync(~0u, value, step);
    value = maximum ? fmaxf(value, other) : value + other;
  }
  return value;
}

template <typename S>
__device__ __forceinline__ float highest_score(const Scores<S>& scores,
                                               int32_t row) {
  float top = -INFINITY;
#pragma unroll
  for (int32_t tile = 0; tile < 2 * S::kStepBlocks; ++tile)
    top = fmaxf(top, fmaxf(scores[tile][row * 2], scores[tile][row * 2 + 1]));
  return over_row(top, true);
}

template <typename S>
__device__ __forceinline__ void rescale(State<S>& state, int32_t row,
                                        float raised) {
  if constexpr (S::kStepsOfSplit > 1) {
    const float factor = ptx::approximate_exp2(state.top[row] - raised);
    state.total[row] *= factor;
#pragma unroll
    for (int32_t tile = 0; tile < S::kTiles; ++tile) {
      state.sums[tile][row * 2] *= factor;
      state.sums[tile][row * 2 + 1] *= factor;
    }
  }
}

template <typename S>
__device__ __forceinline__ void weigh(Scores<S>& scores, State<S>& state) {
#pragma unroll
  for (int32_t row = 0; row < 2; ++row) {
    const float raised = fmaxf(state.top[row], highest_score<S>(scores, row));
    rescale<S>(state, row, raised);
    state.top[row] = raised;
    float sum = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < 4 * S::kStepBlocks; ++i) {
      float& score = scores[i / 2][row * 2 + i % 2];
      score = ptx::approximate_exp2(score - raised);
      sum += score;
    }
    state.total[row] += sum;
  }
}

template <typename S>
__device__ void clear_values(uint8_t* block, int32_t num_valid) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll 1
  for (int32_t half = 0; half < S::kHalves; ++half) {
    uint8_t* values = block + (S::kHalves + half) * kHalfBlockBytes;
#pragma unroll 1
    for (int32_t token = num_valid; token < kBlockTokens; ++token)
      reinterpret_cast<uint32_t*>(values + token * kHalfBytes)[lane] = 0;
  }
  __syncwarp();
}

template <typename S>
__device__ __forceinline__ auto& block_scores(Scores<S>& scores,
                                              int32_t block) {
  return reinterpret_cast<float (&)[2][4]>(scores[2 * block]);
}

template <typename S>
struct Consumer {
  const Arguments& args;
  Shared<S>& shared;
  Cursor<S::kStages> ring;
  Cursor<kQueryBuffers> queries;

  __device__ __forceinline__ void wait_for_query() {
    ptx::barrier_wait(&shared.query_full[queries.slot], queries.parity);
  }

  __device__ __forceinline__ void load_query(int32_t back,
                                             uint32_t (&query)[S::kSteps][4]) {
    Products<S>::load_query(shared.query[queries.slot][back], query);
  }

  __device__ __forceinline__ void leave_query() {
    ptx::warp_arrive(&shared.query_empty[queries.slot]);
    queries.template advance<1>();
  }

  __device__ uint32_t block(int32_t number) const {
    return ptx::shared_address(shared.ring[ring.slot + number]);
  }

  __device__ __forceinline__ void score(const uint32_t (&query)[S::kSteps][4],
                                        Scores<S>& scores) {
#pragma unroll
    for (int32_t i = 0; i < S::kStepBlocks; ++i) {
      ptx::barrier_wait(&shared.full[ring.slot + i], ring.parity);
      Products<S>::score_block(query, block(i), block_scores<S>(scores, i));
    }
  }

  __device__ void clear_past(int32_t num_valid) {
#pragma unroll 1
    for (int32_t i = 0; i < S::kStepBlocks; ++i)
      clear_values<S>(shared.ring[ring.slot + i],
                      max(num_valid - i * kBlockTokens, 0));
    ptx::proxy_fence();
  }

  __device__ __forceinline__ void add_values(Scores<S>& scores,
                                             bool is_last_row,
                                             State<S>& state) {
#pragma unroll
    for (int32_t i = 0; i < S::kStepBlocks; ++i) {
      Products<S>::add_values(block_scores<S>(scores, i),
                              block(i) + S::kHalves * kHalfBlockBytes, state);
      if (is_last_row) ptx::warp_arrive(&shared.empty[ring.slot + i]);
    }
  }

  __device__ void leave_step() {
    for (int32_t i = 0; i < S::kStepBlocks; ++i)
      ptx::warp_arrive(&shared.empty[ring.slot + i]);
    ring.template advance<S::kRingStep>();
  }

  __device__ __forceinline__ void attend_step(
      const uint32_t (&query)[S::kSteps][4], float scale, int32_t num_valid,
      bool is_last_row, State<S>& state) {
    Scores<S> scores = {};
    score(query, scores);
    scale_and_mask<S>(scores, scale, num_valid);
    weigh<S>(scores, state);
    if (num_valid < S::kStepBlocks * kBlockTokens) clear_past(num_valid);
    add_values(scores, is_last_row, state);
    if (is_last_row) ring.template advance<S::kRingStep>();
  }

  __device__ __forceinline__ void attend(const uint32_t (&query)[S::kSteps][4],
                                         float scale, int32_t rest,
                                         int32_t back, bool is_last_row,
                                         int32_t first_warp, State<S>& state) {
    constexpr int32_t kStepTokens = S::kStepBlocks * kBlockTokens;
    state.clear();
    const int32_t part =
        (static_cast<int32_t>(threadIdx.x) / 32 - first_warp) & (S::kWarps - 1);
    const int32_t num_tokens = min(rest - back, kSplitTokens);
    int32_t begin = part * kStepTokens;
    if constexpr (S::kStepsOfSplit == 1) {
      if (begin < num_tokens)
        attend_step(query, scale, num_tokens - begin, is_last_row, state);
      else if (S::kRowsAtOnce > 1 && begin < rest && is_last_row)
        leave_step();
    } else {
      for (; begin < num_tokens; begin += S::kWarps * kStepTokens)
        attend_step(query, scale, num_tokens - begin, true, state);
    }
    state.total[0] = over_row(state.total[0], false);
    state.total[1] = over_row(state.total[1], false);
  }
};

}
