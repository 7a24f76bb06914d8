#ifndef GLM_KERNELS_EXPERTS_UNIT_PRODUCT_HPP
#define GLM_KERNELS_EXPERTS_UNIT_PRODUCT_HPP

#include <cstdint>

#include "native/kernels/experts/shared_state.hpp"
#include "native/kernels/stream/tile_product.hpp"

namespace glm::kernels::mixture {

using stream::RingCursor;

__device__ inline void skip_stages(const TileRing& ring, RingCursor& cursor,
                                   int32_t count) {
  int32_t stage = cursor.stage + count;
  cursor.parity ^= stage / ring.num_stages & 1;
  cursor.stage = stage % ring.num_stages;
}

struct StageOperands {
  uint64_t weights;
  uint64_t tokens;
};

template <int32_t columns, int32_t chains>
__device__ inline void hold_chains(float (&part)[chains][columns / 2]) {
#pragma unroll
  for (int32_t i = 0; i < chains; ++i) ptx::hold(part[i]);
}

__device__ inline uint64_t descriptor_step(int32_t bytes) {
  return static_cast<uint64_t>(bytes >> 4);
}

template <int32_t rows>
__device__ inline int32_t weight_bytes(int32_t chain) {
  using Shape = StageShape<rows>;
  return chain / Shape::kRowBlocks * Shape::kTileBytesOfUnit +
         chain % Shape::kRowBlocks * stream::kWarpgroupBytes;
}

template <int32_t rows, int32_t max_columns>
__device__ inline int32_t token_bytes(int32_t chain) {
  return chain / StageShape<rows>::kRowBlocks * max_columns * kTileRowBytes;
}

template <int32_t rows, int32_t columns, int32_t max_columns, int32_t chains>
__device__ inline void multiply_side_by_side(float (&part)[chains][columns / 2],
                                             const StageOperands& stage) {
  uint64_t weights[chains];
  uint64_t tokens[chains];
#pragma unroll
  for (int32_t i = 0; i < chains; ++i) {
    weights[i] = stage.weights + descriptor_step(weight_bytes<rows>(i));
    tokens[i] =
        stage.tokens + descriptor_step(token_bytes<rows, max_columns>(i));
  }
  hold_chains<columns, chains>(part);
  stream::multiply_interleaved<columns, chains>(part, weights, tokens);
}

template <int32_t rows, int32_t columns, int32_t max_columns, int32_t chains>
__device__ inline void multiply_in_turn(float (&part)[chains][columns / 2],
                                        const StageOperands& stage) {
#pragma unroll
  for (int32_t i = 0; i < chains; ++i) stream::clear(part[i]);
  hold_chains<columns, chains>(part);
  ptx::wgmma_fence();
#pragma unroll
  for (int32_t i = 0; i < chains; ++i)
    stream::multiply_steps<GLM_DTYPE_F8_E4M3, columns>(
        part[i], stage.weights + descriptor_step(weight_bytes<rows>(i)),
        stage.tokens + descriptor_step(token_bytes<rows, max_columns>(i)), 0);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
}

template <int32_t rows, int32_t columns, int32_t max_columns, int32_t tiles>
__device__ inline void add_promoted(
    float (&sum)[StageShape<rows>::kRowBlocks][columns / 2],
    const StageOperands& stage) {
  constexpr int32_t kBlocks = StageShape<rows>::kRowBlocks;
  constexpr int32_t kChains = tiles * kBlocks;
  float part[kChains][columns / 2];
  if constexpr (max_columns == kFewColumns)
    multiply_side_by_side<rows, columns, max_columns, kChains>(part, stage);
  else
    multiply_in_turn<rows, columns, max_columns, kChains>(part, stage);
  hold_chains<columns, kChains>(part);
#pragma unroll
  for (int32_t i = 0; i < kChains; ++i)
#pragma unroll
    for (int32_t j = 0; j < columns / 2; ++j) sum[i % kBlocks][j] += part[i][j];
}

template <int32_t rows, int32_t columns, int32_t max_columns, int32_t tiles>
__device__ inline void add_in_place(
    float (&sum)[StageShape<rows>::kRowBlocks][columns / 2],
    const StageOperands& stage) {
  constexpr int32_t kBlocks = StageShape<rows>::kRowBlocks;
  hold_chains<columns, kBlocks>(sum);
  ptx::wgmma_fence();
#pragma unroll
  for (int32_t i = 0; i < tiles * kBlocks; ++i)
    stream::multiply_steps<GLM_DTYPE_BF16, columns>(
        sum[i % kBlocks],
        stage.weights + descriptor_step(weight_bytes<rows>(i)),
        stage.tokens + descriptor_step(token_bytes<rows, max_columns>(i)), 1);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  hold_chains<columns, kBlocks>(sum);
}

template <int32_t dtype, int32_t rows, int32_t columns, int32_t max_columns,
          int32_t tiles>
__device__ inline void add_tiles(
    float (&sum)[StageShape<rows>::kRowBlocks][columns / 2],
    const StageOperands& stage) {
  if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
    add_promoted<rows, columns, max_columns, tiles>(sum, stage);
  } else {
    add_in_place<rows, columns, max_columns, tiles>(sum, stage);
  }
}

template <int32_t dtype, int32_t rows, int32_t columns, int32_t max_columns>
__device__ inline void add_stage(
    float (&sum)[StageShape<rows>::kRowBlocks][columns / 2],
    StageOperands stage, int32_t num_tiles) {
  constexpr int32_t kTiles = StageShape<rows>::kTiles;
  if (num_tiles >= kTiles)
    return add_tiles<dtype, rows, columns, max_columns, kTiles>(sum, stage);
  for (int32_t i = 0; i < num_tiles; ++i) {
    add_tiles<dtype, rows, columns, max_columns, 1>(sum, stage);
    stage.weights += descriptor_step(StageShape<rows>::kTileBytesOfUnit);
    stage.tokens += descriptor_step(max_columns * kTileRowBytes);
  }
}

template <int32_t dtype, int32_t rows, int32_t columns, int32_t max_columns>
__device__ inline void multiply_unit(
    const Frame& frame, RingCursor& cursor, int32_t num_tiles,
    const TeamShare& share,
    float (&sum)[StageShape<rows>::kRowBlocks][columns / 2]) {
  constexpr int32_t kTiles = StageShape<rows>::kTiles;
#pragma unroll
  for (int32_t i = 0; i < StageShape<rows>::kRowBlocks; ++i)
    stream::clear(sum[i]);
  for (int32_t tile = 0; tile < num_tiles; tile += kTiles) {
    uint32_t stage = ptx::shared_address(frame.ring.stages +
                                         cursor.stage * frame.ring.stage_bytes);
    ptx::barrier_wait(&frame.ring.barriers->full[cursor.stage], cursor.parity);
    ptx::proxy_fence();
    add_stage<dtype, rows, columns, max_columns>(
        sum,
        {ptx::swizzled_descriptor(stage),
         ptx::swizzled_descriptor(stage + kTileBytes +
                                  share.first_token * kTileRowBytes)},
        num_tiles - tile);
    if (threadIdx.x % kWarpThreads == 0)
      ptx::barrier_arrive(&frame.ring.barriers->empty[cursor.stage],
                          share.arrivals());
    cursor.advance(frame.ring.num_stages);
  }
}

}

#endif
