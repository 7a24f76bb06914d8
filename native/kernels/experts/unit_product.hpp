#pragma once

#include <cstdint>

#include "native/kernels/experts/shared_state.hpp"
#include "native/kernels/stream/tile_product.hpp"

namespace glm::kernels::mixture {

__device__ inline void skip_stages(const TileRing& ring,
                                   products::RingCursor& cursor,
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

template <typename Shape>
__device__ inline int32_t weight_bytes(int32_t chain) {
  return chain / Shape::kBlocks * Shape::kTileBytesOfUnit +
         chain % Shape::kBlocks * stream::kWarpgroupBytes;
}

template <typename Shape>
__device__ inline int32_t token_bytes(int32_t chain) {
  return chain / Shape::kBlocks * Shape::kTokenBytes;
}

template <typename Shape, int32_t columns, int32_t chains>
__device__ inline void multiply_side_by_side(float (&part)[chains][columns / 2],
                                             const StageOperands& stage) {
  uint64_t weights[chains];
  uint64_t tokens[chains];
#pragma unroll
  for (int32_t i = 0; i < chains; ++i) {
    weights[i] = stage.weights + descriptor_step(weight_bytes<Shape>(i));
    tokens[i] = stage.tokens + descriptor_step(token_bytes<Shape>(i));
  }
  hold_chains<columns, chains>(part);
  stream::multiply_interleaved<columns, chains>(part, weights, tokens);
}

template <typename Shape, int32_t columns, int32_t tiles>
__device__ inline void add_promoted(float (&sum)[Shape::kBlocks][columns / 2],
                                    const StageOperands& stage) {
  constexpr int32_t kBlocks = Shape::kBlocks;
  constexpr int32_t kChains = tiles * kBlocks;
  float part[kChains][columns / 2];
  if constexpr (Shape::kSharesUnits) {
    stream::clear(part[0]);
    stream::begin_part<columns>(part[0], stage.weights, stage.tokens);
    ptx::wgmma_wait<0>();
  } else {
    multiply_side_by_side<Shape, columns, kChains>(part, stage);
  }
  hold_chains<columns, kChains>(part);
#pragma unroll
  for (int32_t i = 0; i < kChains; ++i)
#pragma unroll
    for (int32_t j = 0; j < columns / 2; ++j) sum[i % kBlocks][j] += part[i][j];
}

template <typename Shape, int32_t columns, int32_t tiles>
__device__ inline void add_in_place(float (&sum)[Shape::kBlocks][columns / 2],
                                    const StageOperands& stage) {
  constexpr int32_t kBlocks = Shape::kBlocks;
  hold_chains<columns, kBlocks>(sum);
  ptx::wgmma_fence();
#pragma unroll
  for (int32_t i = 0; i < tiles * kBlocks; ++i)
    stream::multiply_steps<GLM_DTYPE_BF16, columns>(
        sum[i % kBlocks],
        stage.weights + descriptor_step(weight_bytes<Shape>(i)),
        stage.tokens + descriptor_step(token_bytes<Shape>(i)), 1);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  hold_chains<columns, kBlocks>(sum);
}

template <int32_t dtype, typename Shape, int32_t columns, int32_t tiles>
__device__ inline void add_tiles(float (&sum)[Shape::kBlocks][columns / 2],
                                 const StageOperands& stage) {
  if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
    add_promoted<Shape, columns, tiles>(sum, stage);
  } else {
    add_in_place<Shape, columns, tiles>(sum, stage);
  }
}

template <int32_t dtype, typename Shape, int32_t columns>
__device__ inline void add_stage(float (&sum)[Shape::kBlocks][columns / 2],
                                 StageOperands stage, int32_t num_tiles) {
  constexpr int32_t kTiles = Shape::kTiles;
  if (num_tiles >= kTiles)
    return add_tiles<dtype, Shape, columns, kTiles>(sum, stage);
  for (int32_t i = 0; i < num_tiles; ++i) {
    add_tiles<dtype, Shape, columns, 1>(sum, stage);
    stage.weights += descriptor_step(Shape::kTileBytesOfUnit);
    stage.tokens += descriptor_step(Shape::kTokenBytes);
  }
}

template <int32_t dtype, typename Shape, int32_t columns>
__device__ inline void multiply_unit(
    const Frame& frame, products::RingCursor& cursor, int32_t num_tiles,
    float (&sum)[Shape::kBlocks][columns / 2]) {
  constexpr int32_t kTiles = Shape::kTiles;
#pragma unroll
  for (int32_t i = 0; i < Shape::kBlocks; ++i) stream::clear(sum[i]);
  for (int32_t tile = 0; tile < num_tiles; tile += kTiles) {
    uint32_t stage = ptx::shared_address(frame.ring.stages +
                                         cursor.stage * frame.ring.stage_bytes);
    ptx::barrier_wait(&frame.ring.barriers->full[cursor.stage], cursor.parity);
    ptx::proxy_fence();
    add_stage<dtype, Shape, columns>(
        sum,
        {ptx::swizzled_descriptor(stage + Shape::first_block() *
                                              stream::kWarpgroupBytes),
         ptx::swizzled_descriptor(stage + kTileBytes)},
        num_tiles - tile);
    if (threadIdx.x % kWarpThreads == 0)
      ptx::barrier_arrive(&frame.ring.barriers->empty[cursor.stage],
                          kTeams / Shape::kTeamsOfUnit);
    cursor.advance(frame.ring.num_stages);
  }
}

}
