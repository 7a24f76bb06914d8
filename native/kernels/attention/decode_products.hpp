#ifndef GLM_KERNELS_ATTENTION_DECODE_PRODUCTS_HPP
#define GLM_KERNELS_ATTENTION_DECODE_PRODUCTS_HPP

#include "native/kernels/attention/decode_items.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_matrix.hpp"

namespace glm::kernels::decode {

template <int32_t halves>
struct State {
  float sums[halves * 8][4];
  float top[2];
  float total[2];

  __device__ void clear() {
#pragma unroll
    for (int32_t i = 0; i < halves * 32; ++i) sums[i / 4][i % 4] = 0.0f;
    top[0] = top[1] = -INFINITY;
    total[0] = total[1] = 0.0f;
  }
};

template <int32_t halves>
__device__ void load_query(const uint8_t* rows,
                           uint32_t (&query)[halves * 4][4]) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const uint32_t place = ptx::shared_address(rows) +
                         lane % 16 * Shape<halves>::kQueryStride +
                         lane / 16 * kChunkBytes;
#pragma unroll
  for (int32_t step = 0; step < halves * 4; ++step) {
    const ptx::Fragments fragments = ptx::load_matrices(place + step * 32);
#pragma unroll
    for (int32_t part = 0; part < 4; ++part)
      query[step][part] = fragments.at[part];
  }
}

template <int32_t halves>
__device__ void score_block(const uint32_t (&query)[halves * 4][4],
                            uint32_t keys, float (&scores)[2][4]) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t token = lane % 8 + lane / 16 * 8;
  const int32_t chunk = lane / 8 % 2;
  float odd[2][4] = {};
#pragma unroll
  for (int32_t step = 0; step < halves * 4; ++step) {
    const int32_t byte = step % 4 * 32 + chunk * kChunkBytes;
    const ptx::Fragments key = ptx::load_matrices(
        keys + step / 4 * kHalfBlockBytes + swizzle(token, byte));
    auto& sum = step % 2 == 0 ? scores : odd;
    ptx::multiply_bf16(sum[0], query[step], key.at[0], key.at[1]);
    ptx::multiply_bf16(sum[1], query[step], key.at[2], key.at[3]);
  }
#pragma unroll
  for (int32_t i = 0; i < 8; ++i) scores[i / 4][i % 4] += odd[i / 4][i % 4];
}

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

template <int32_t halves>
__device__ __forceinline__ void weigh(float (&scores)[2][4],
                                      State<halves>& state) {
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
    for (int32_t tile = 0; tile < halves * 8; ++tile) {
      state.sums[tile][a] *= factor;
      state.sums[tile][b] *= factor;
    }
  }
}

__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <int32_t halves>
__device__ __forceinline__ void add_values(const float (&weights)[2][4],
                                           uint32_t values,
                                           State<halves>& state) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t token = lane % 16;
  const int32_t chunk = lane / 16;
  const uint32_t packed[4] = {
      pack(weights[0][0], weights[0][1]), pack(weights[0][2], weights[0][3]),
      pack(weights[1][0], weights[1][1]), pack(weights[1][2], weights[1][3])};
#pragma unroll
  for (int32_t pair = 0; pair < halves * 4; ++pair) {
    const int32_t byte = pair % 4 * 32 + chunk * kChunkBytes;
    const ptx::Fragments value = ptx::load_transposed_matrices(
        values + pair / 4 * kHalfBlockBytes + swizzle(token, byte));
    ptx::multiply_bf16(state.sums[2 * pair], packed, value.at[0], value.at[1]);
    ptx::multiply_bf16(state.sums[2 * pair + 1], packed, value.at[2],
                       value.at[3]);
  }
}

template <int32_t halves>
__device__ void clear_values(uint8_t* block, int32_t num_valid) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t half = 0; half < halves; ++half) {
    uint8_t* values = block + (halves + half) * kHalfBlockBytes;
    for (int32_t token = num_valid; token < kBlockTokens; ++token)
      reinterpret_cast<uint32_t*>(values + token * kHalfBytes)[lane] = 0;
  }
  __syncwarp();
}

template <int32_t halves>
__device__ __forceinline__ void attend_block(
    const Arguments& args, uint8_t* block,
    const uint32_t (&query)[halves * 4][4], int32_t num_valid,
    State<halves>& state) {
  const uint32_t keys = ptx::shared_address(block);
  float scores[2][4] = {};
  score_block<halves>(query, keys, scores);
  scale_and_mask(scores, args.scale, num_valid);
  if (num_valid < kBlockTokens) clear_values<halves>(block, num_valid);
  weigh<halves>(scores, state);
  add_values<halves>(scores, keys + halves * kHalfBlockBytes, state);
}

template <int32_t halves>
struct Consumer {
  using S = Shape<halves>;

  const Arguments& args;
  Shared<halves>& shared;
  int32_t warp;
  bool is_first_lane;
  Cursor<S::kStages> ring;
  Cursor<kQueryBuffers> queries;

  __device__ __forceinline__ void take_query(uint32_t (&query)[halves * 4][4]) {
    ptx::barrier_wait(&shared.query_full[queries.slot], queries.parity);
    load_query<halves>(shared.query[queries.slot], query);
    __syncwarp();
    if (is_first_lane) ptx::barrier_arrive(&shared.query_empty[queries.slot]);
    queries.advance(1);
  }

  __device__ __forceinline__ void attend(const Item& item,
                                         State<halves>& state) {
    uint32_t query[halves * 4][4];
    take_query(query);
    state.clear();
    const int32_t num_tokens = item.end - item.begin;
    for (int32_t begin = 0; begin < num_tokens;
         begin += S::kWarps * kBlockTokens) {
      const int32_t num_valid = num_tokens - begin - warp * kBlockTokens;
      const int32_t slot = ring.slot + warp;
      ptx::barrier_wait(&shared.full[slot], ring.parity);
      if (num_valid > 0)
        attend_block<halves>(args, shared.ring[slot], query, num_valid, state);
      if (num_valid < kBlockTokens) ptx::proxy_fence();
      __syncwarp();
      if (is_first_lane) ptx::barrier_arrive(&shared.empty[slot]);
      ring.advance(S::kWarps);
    }
    state.total[0] = over_row(state.total[0], false);
    state.total[1] = over_row(state.total[1], false);
  }
};

}

#endif
