#ifndef GLM_KERNELS_ATTENTION_DECODE_PRODUCTS_HPP
#define GLM_KERNELS_ATTENTION_DECODE_PRODUCTS_HPP

#include <type_traits>

#include "native/kernels/attention/decode_bf16.hpp"
#include "native/kernels/attention/decode_f8.hpp"
#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_state.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_arrival.hpp"
#include "native/ptx/warp_matrix.hpp"

namespace glm::kernels::decode {

template <typename S>
using Products = std::conditional_t<S::kIsF8, F8Products<S>, Bf16Products<S>>;

__device__ inline void scale_and_mask(float (&scores)[2][4], float scale,
                                      int32_t num_valid) {
  const int32_t column = static_cast<int32_t>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int32_t i = 0; i < 8; ++i) {
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
__device__ __forceinline__ void weigh(float (&scores)[2][4], State<S>& state) {
#pragma unroll
  for (int32_t row = 0; row < 2; ++row) {
    const int32_t a = row * 2;
    const int32_t b = a + 1;
    const float top = over_row(fmaxf(fmaxf(scores[0][a], scores[0][b]),
                                     fmaxf(scores[1][a], scores[1][b])),
                               true);
    const float raised = fmaxf(state.top[row], top);
    const float factor = ptx::power_of_two(state.top[row] - raised);
    state.top[row] = raised;
    float sum = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      float& score = scores[i / 2][a + i % 2];
      score = ptx::power_of_two(score - raised);
      sum += score;
    }
    state.total[row] = state.total[row] * factor + sum;
#pragma unroll
    for (int32_t tile = 0; tile < S::kTiles; ++tile) {
      state.sums[tile][a] *= factor;
      state.sums[tile][b] *= factor;
    }
  }
}

template <typename S>
__device__ void clear_values(uint8_t* block, int32_t num_valid) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t half = 0; half < S::kHalves; ++half) {
    uint8_t* values = block + (S::kHalves + half) * kHalfBlockBytes;
    for (int32_t token = num_valid; token < kBlockTokens; ++token)
      reinterpret_cast<uint32_t*>(values + token * kHalfBytes)[lane] = 0;
  }
  __syncwarp();
}

template <typename S>
__device__ __forceinline__ void attend_block(
    uint8_t* block, const uint32_t (&query)[S::kSteps][4], float scale,
    int32_t num_valid, State<S>& state) {
  const uint32_t keys = ptx::shared_address(block);
  float scores[2][4] = {};
  Products<S>::score_block(query, keys, scores);
  scale_and_mask(scores, scale, num_valid);
  if (num_valid < kBlockTokens) clear_values<S>(block, num_valid);
  weigh<S>(scores, state);
  Products<S>::add_values(scores, keys + S::kHalves * kHalfBlockBytes, state);
}

template <typename S>
struct Consumer {
  const Arguments& args;
  Shared<S>& shared;
  int32_t warp;
  Cursor<S::kStages> ring;
  Cursor<kQueryBuffers> queries;
  int32_t first_warp = 0;

  __device__ __forceinline__ void take_query(uint32_t (&query)[S::kSteps][4]) {
    ptx::barrier_wait(&shared.query_full[queries.slot], queries.parity);
    Products<S>::load_query(shared.query[queries.slot], query);
    ptx::warp_arrive(&shared.query_empty[queries.slot]);
    queries.advance(1);
  }

  __device__ __forceinline__ void attend(const Item& item, State<S>& state) {
    const float scale = args.scale * scale_of<S>(args.key_scale, item.kv_head);
    uint32_t query[S::kSteps][4];
    take_query(query);
    state.clear();
    const int32_t num_tokens = item.end - item.begin;
    const int32_t part = (warp - first_warp) & (S::kWarps - 1);
    first_warp = (first_warp + item.num_blocks()) & (S::kWarps - 1);
    for (int32_t begin = part * kBlockTokens; begin < num_tokens;
         begin += S::kWarps * kBlockTokens) {
      const int32_t num_valid = num_tokens - begin;
      ptx::barrier_wait(&shared.full[ring.slot], ring.parity);
      attend_block<S>(shared.ring[ring.slot], query, scale, num_valid, state);
      if (num_valid < kBlockTokens) ptx::proxy_fence();
      ptx::warp_arrive(&shared.empty[ring.slot]);
      ring.advance(S::kWarps);
    }
    state.total[0] = over_row(state.total[0], false);
    state.total[1] = over_row(state.total[1], false);
  }
};

}

#endif
