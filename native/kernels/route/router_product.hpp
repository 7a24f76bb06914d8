#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/route/parameters.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_matrix.hpp"

namespace glm::kernels::routing {

constexpr int32_t kStepBytes = 32;

template <int32_t token_blocks>
struct Sums {
  float at[token_blocks][2][4];
};

__device__ inline uint32_t matrix_row_address(uint32_t base, int32_t row,
                                              int32_t byte) {
  return base + swizzle(row, byte);
}

__device__ inline ptx::Fragments token_fragments(uint32_t tile, int32_t block,
                                                 int32_t byte, int32_t lane) {
  return ptx::load_matrices(matrix_row_address(
      tile, block * kFragmentTokens + lane % 8, byte + lane / 8 * kChunkBytes));
}

__device__ inline ptx::Fragments bf16_weights(uint32_t slab, int32_t row,
                                              int32_t byte, int32_t lane) {
  return ptx::load_matrices(matrix_row_address(slab, row + lane % 16,
                                               byte + lane / 16 * kChunkBytes));
}

template <int32_t token_blocks>
struct Bf16Tile {
  ptx::Fragments weights[4];
  ptx::Fragments tokens[2][token_blocks];
};

template <int32_t token_blocks>
__device__ inline Bf16Tile<token_blocks> load_bf16_tile(uint32_t slab,
                                                        uint32_t tokens,
                                                        int32_t row,
                                                        int32_t lane) {
  Bf16Tile<token_blocks> tile;
#pragma unroll
  for (int32_t step = 0; step < 4; ++step)
    tile.weights[step] = bf16_weights(slab, row, step * kStepBytes, lane);
#pragma unroll
  for (int32_t pair = 0; pair < 2; ++pair)
#pragma unroll
    for (int32_t block = 0; block < token_blocks; ++block)
      tile.tokens[pair][block] =
          token_fragments(tokens, block, pair * 2 * kStepBytes, lane);
  return tile;
}

template <int32_t token_blocks>
__device__ inline void add_bf16_tile(Sums<token_blocks>& sums,
                                     const Bf16Tile<token_blocks>& tile) {
#pragma unroll
  for (int32_t pair = 0; pair < 2; ++pair)
#pragma unroll
    for (int32_t block = 0; block < token_blocks; ++block) {
      const ptx::Fragments& x = tile.tokens[pair][block];
      ptx::multiply_bf16(sums.at[block][0], tile.weights[2 * pair].at, x.at[0],
                         x.at[1]);
      ptx::multiply_bf16(sums.at[block][1], tile.weights[2 * pair + 1].at,
                         x.at[2], x.at[3]);
    }
}

struct SplitWeights {
  uint32_t part[3][4];
};

__device__ inline uint32_t take_leading(float2& rest) {
  __nv_bfloat162 leading = __floats2bfloat162_rn(rest.x, rest.y);
  float2 taken = __bfloat1622float2(leading);
  rest.x -= taken.x;
  rest.y -= taken.y;
  return *reinterpret_cast<uint32_t*>(&leading);
}

__device__ inline SplitWeights split_weights(const float2 (&weights)[4]) {
  SplitWeights split;
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    float2 rest = weights[i];
#pragma unroll
    for (int32_t part = 0; part < 3; ++part)
      split.part[part][i] = take_leading(rest);
  }
  return split;
}

__device__ inline int32_t split_offset(int32_t row, int32_t step, int32_t lane,
                                       int32_t i) {
  int32_t byte = step * 2 * kStepBytes + i / 2 * kStepBytes + lane % 4 * 8;
  return swizzle(row + lane / 4 + i % 2 * 8, byte);
}

__device__ inline SplitWeights split_weights(const uint8_t* slab, int32_t row,
                                             int32_t step, int32_t lane) {
  float2 weights[4];
#pragma unroll
  for (int32_t i = 0; i < 4; ++i)
    weights[i] = *reinterpret_cast<const float2*>(
        slab + split_offset(row, step, lane, i));
  return split_weights(weights);
}

template <int32_t token_blocks>
__device__ inline void add_f32_tile(Sums<token_blocks>& sums,
                                    const uint8_t* slab, uint32_t tokens,
                                    int32_t token_byte, int32_t row,
                                    int32_t lane) {
  SplitWeights even = split_weights(slab, row, 0, lane);
  SplitWeights odd = split_weights(slab, row, 1, lane);
#pragma unroll
  for (int32_t block = 0; block < token_blocks; ++block) {
    ptx::Fragments x = token_fragments(tokens, block, token_byte, lane);
#pragma unroll
    for (int32_t part = 2; part >= 0; --part) {
      ptx::multiply_bf16(sums.at[block][0], even.part[part], x.at[0], x.at[1]);
      ptx::multiply_bf16(sums.at[block][1], odd.part[part], x.at[2], x.at[3]);
    }
  }
}

}
