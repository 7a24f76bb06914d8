#pragma once

#include "native/kernels/attention/decode_state.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_matrix.hpp"

namespace glm::kernels::decode {

template <typename S>
struct Bf16Products {
  __device__ static void load_query(const uint8_t* rows,
                                    uint32_t (&query)[S::kSteps][4]) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const uint32_t place = ptx::shared_address(rows) +
                           lane % 16 * S::kQueryStride +
                           lane / 16 * kChunkBytes;
#pragma unroll
    for (int32_t step = 0; step < S::kSteps; ++step) {
      const ptx::Fragments fragments = ptx::load_matrices(place + step * 32);
#pragma unroll
      for (int32_t part = 0; part < 4; ++part)
        query[step][part] = fragments.at[part];
    }
  }

  __device__ static void score_block(const uint32_t (&query)[S::kSteps][4],
                                     uint32_t keys, float (&scores)[2][4]) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t token = lane % 8 + lane / 16 * 8;
    const int32_t chunk = lane / 8 % 2;
    float odd[2][4] = {};
#pragma unroll
    for (int32_t step = 0; step < S::kSteps; ++step) {
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

  __device__ static void add_values(const float (&weights)[2][4],
                                    uint32_t values, State<S>& state) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t token = lane % 16;
    const int32_t chunk = lane / 16;
    const uint32_t packed[4] = {
        pack(weights[0][0], weights[0][1]), pack(weights[0][2], weights[0][3]),
        pack(weights[1][0], weights[1][1]), pack(weights[1][2], weights[1][3])};
#pragma unroll
    for (int32_t pair = 0; pair < S::kTiles / 2; ++pair) {
      const int32_t byte = pair % 4 * 32 + chunk * kChunkBytes;
      const ptx::Fragments value = ptx::load_transposed_matrices(
          values + pair / 4 * kHalfBlockBytes + swizzle(token, byte));
      ptx::multiply_bf16(state.sums[2 * pair], packed, value.at[0],
                         value.at[1]);
      ptx::multiply_bf16(state.sums[2 * pair + 1], packed, value.at[2],
                         value.at[3]);
    }
  }

  __device__ static float2 pair_of(const State<S>& state, int32_t pair,
                                   int32_t part) {
    return make_float2(state.sums[pair][part * 2],
                       state.sums[pair][part * 2 + 1]);
  }

  __device__ static int32_t dim_of(int32_t pair, int32_t lane) {
    return pair * 8 + lane % 4 * 2;
  }
};

}
