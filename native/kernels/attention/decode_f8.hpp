#pragma once

#include "native/kernels/attention/decode_state.hpp"
#include "native/ptx/warp_matrix.hpp"

namespace glm::kernels::decode {

template <typename S>
struct F8Products {
  __device__ static void load_query(const uint8_t* rows,
                                    uint32_t (&query)[S::kSteps][4]) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
    for (int32_t step = 0; step < S::kSteps; ++step) {
#pragma unroll
      for (int32_t part = 0; part < 2; ++part) {
        const uint2 four = *reinterpret_cast<const uint2*>(
            rows + (lane / 4 + part * 8) * S::kQueryStride + step * 32 +
            lane % 4 * 8);
        query[step][part] = ptx::halves_of_bf16(four.x);
        query[step][part + 2] = ptx::halves_of_bf16(four.y);
      }
    }
  }

  __device__ static void score_block(const uint32_t (&query)[S::kSteps][4],
                                     uint32_t keys, float (&scores)[2][4]) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t token = lane % 8 + lane / 16 * 8;
    const int32_t chunk = lane / 8 % 2;
    float odd[2][4] = {};
#pragma unroll
    for (int32_t step = 0; step < S::kSteps; step += 2) {
      const int32_t byte = step % 8 * kChunkBytes + chunk * kChunkBytes;
      const ptx::Fragments key = ptx::load_matrices(
          keys + step / 8 * kHalfBlockBytes + swizzle(token, byte));
#pragma unroll
      for (int32_t tile = 0; tile < 2; ++tile) {
        multiply(scores[tile], query[step], key.at[2 * tile]);
        multiply(odd[tile], query[step + 1], key.at[2 * tile + 1]);
      }
    }
#pragma unroll
    for (int32_t i = 0; i < 8; ++i) scores[i / 4][i % 4] += odd[i / 4][i % 4];
  }

  __device__ static void multiply(float (&sum)[4], const uint32_t (&query)[4],
                                  uint32_t codes) {
    ptx::multiply_half(sum, query, ptx::half_of_e4m3(codes),
                       ptx::half_of_e4m3(codes >> 16));
  }

  __device__ static void add_values(const float (&weights)[2][4],
                                    uint32_t values, State<S>& state) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t token = lane % 16;
    const int32_t chunk = lane / 16;
    const uint32_t packed[4] = {ptx::halves(weights[0][0], weights[0][1]),
                                ptx::halves(weights[0][2], weights[0][3]),
                                ptx::halves(weights[1][0], weights[1][1]),
                                ptx::halves(weights[1][2], weights[1][3])};
#pragma unroll
    for (int32_t step = 0; step < S::kSteps; step += 2) {
      const int32_t byte = step % 8 * kChunkBytes + chunk * kChunkBytes;
      const ptx::Fragments value = ptx::load_transposed_matrices(
          values + step / 8 * kHalfBlockBytes + swizzle(token, byte));
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const uint32_t first = __byte_perm(value.at[2 * i], 0, 0x3120);
        const uint32_t second = __byte_perm(value.at[2 * i + 1], 0, 0x3120);
        ptx::multiply_half(state.sums[2 * (step + i)], packed,
                           ptx::half_of_e4m3(first), ptx::half_of_e4m3(second));
        ptx::multiply_half(state.sums[2 * (step + i) + 1], packed,
                           ptx::half_of_e4m3(first >> 16),
                           ptx::half_of_e4m3(second >> 16));
      }
    }
  }

  __device__ static float2 pair_of(const State<S>& state, int32_t pair,
                                   int32_t part) {
    const int32_t even = pair / 2 * 2;
    const int32_t column = part * 2 + pair % 2;
    return make_float2(state.sums[even][column], state.sums[even + 1][column]);
  }

  __device__ static int32_t dim_of(int32_t pair, int32_t lane) {
    return pair / 2 * 16 + lane % 4 * 4 + pair % 2 * 2;
  }
};

}
