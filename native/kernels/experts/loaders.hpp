#ifndef GLM_KERNELS_EXPERTS_LOADERS_HPP
#define GLM_KERNELS_EXPERTS_LOADERS_HPP

#include <cstdint>

#include "native/kernels/experts/shared_state.hpp"
#include "native/ptx/async_copy.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/device_flags.hpp"

namespace glm::kernels::mixture {

using stream::RingCursor;

__device__ inline const uint8_t* unit_weights(const StreamedMatrix& matrix,
                                              int32_t expert, int32_t row) {
  return matrix.data + expert * matrix.stride +
         int64_t{row / kTileRows} * matrix.num_column_tiles * kTileBytes +
         row % kTileRows * kTileRowBytes;
}

template <int32_t rows>
__device__ inline void stream_unit(const Frame& frame, RingCursor& cursor,
                                   const Unit& unit) {
  using Shape = StageShape<rows>;
  const StreamedMatrix& matrix = matrix_of(frame, unit);
  const uint8_t* source = unit_weights(
      matrix, frame.shared.lists[unit.list].expert, unit.row_unit * rows);
  for (int32_t tile = 0; tile < matrix.num_column_tiles;
       tile += Shape::kTiles) {
    uint64_t* full = &frame.ring.barriers->full[cursor.stage];
    uint8_t* stage = frame.ring.stages + cursor.stage * frame.ring.stage_bytes;
    int32_t count = min(Shape::kTiles, matrix.num_column_tiles - tile);
    ptx::barrier_wait(&frame.ring.barriers->empty[cursor.stage],
                      cursor.parity ^ 1);
    ptx::barrier_expect(full, count * Shape::kTileBytesOfUnit);
#pragma unroll
    for (int32_t i = 0; i < Shape::kTiles; ++i)
      if (i < count)
        ptx::bulk_copy(stage + i * Shape::kTileBytesOfUnit,
                       source + int64_t{tile + i} * kTileBytes,
                       Shape::kTileBytesOfUnit, full, ptx::kEvictFirst);
    cursor.advance(frame.ring);
  }
}

__device__ inline void close_epoch(const Frame& frame) {
  frame.p.control->next_unit = 0;
  frame.p.control->epoch = frame.shared.epoch + 1;
}

template <int32_t rows>
__device__ inline void stream_weights(const Frame& frame) {
  QueueCursor queue;
  RingCursor ring;
  int32_t num_units = frame.num_units();
  int32_t index = blockIdx.x;
  uint32_t taken = 0;
  while (true) {
    taken = atomicAdd(&frame.p.control->next_unit, 1u);
    bool is_unit = index < num_units;
    push_unit(frame.shared.queue, queue, is_unit ? index : kNoUnit);
    if (!is_unit) break;
    Unit unit = frame.unit_at(index);
    if (unit.phase != Phase::combine) stream_unit<rows>(frame, ring, unit);
    index = static_cast<int32_t>(gridDim.x + taken);
  }
  if (taken == num_units + gridDim.x - 1) close_epoch(frame);
}

template <int32_t max_columns>
struct LaneRows {
  static constexpr int32_t kLanesPerRow = kTileRowBytes / kChunkBytes;
  static constexpr int32_t kRowsAtOnce = kWarpThreads / kLanesPerRow;
  static constexpr int32_t kCount = max_columns / kRowsAtOnce;
  const uint8_t* source[kCount];

  __device__ LaneRows(const Frame& frame, const TokenSource& tokens,
                      const ExpertList& list, int32_t lane) {
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) {
      int32_t row = i * kRowsAtOnce + lane / kLanesPerRow;
      if (row >= list.count) continue;
      int32_t index =
          frame.order[list.begin + row] / tokens.assignments_per_row;
      source[i] = tokens.data + index * tokens.row_stride;
    }
  }

  __device__ void copy(uint32_t block, const TokenSource& tokens, int32_t tile,
                       int32_t count, int32_t lane) const {
    int32_t within = lane % kLanesPerRow * kChunkBytes;
    int32_t byte = tile * kTileRowBytes + within;
    int32_t bytes = min(kChunkBytes, max(0, tokens.row_bytes - byte));
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) {
      int32_t row = i * kRowsAtOnce + lane / kLanesPerRow;
      if (row >= count) continue;
      ptx::async_copy(block + swizzle(row, within),
                      source[i] + (bytes > 0 ? byte : 0), bytes);
    }
  }
};

template <int32_t rows, int32_t max_columns>
__device__ inline void load_stages(const Frame& frame, RingCursor& cursor,
                                   const TokenSource& tokens,
                                   const LaneRows<max_columns>& lanes,
                                   int32_t count, int32_t num_tiles) {
  using Shape = StageShape<rows>;
  int32_t lane = threadIdx.x % kWarpThreads;
  for (int32_t tile = 0; tile < num_tiles; tile += Shape::kTiles) {
    ptx::barrier_wait(&frame.ring.barriers->empty[cursor.stage],
                      cursor.parity ^ 1);
    uint32_t block = ptx::shared_address(
        frame.ring.stages + cursor.stage * frame.ring.stage_bytes + kTileBytes);
#pragma unroll
    for (int32_t i = 0; i < Shape::kTiles; ++i)
      if (tile + i < num_tiles)
        lanes.copy(block + i * max_columns * kTileRowBytes, tokens, tile + i,
                   count, lane);
    ptx::arrive_after_copies(&frame.ring.barriers->full[cursor.stage]);
    cursor.advance(frame.ring);
  }
}

template <int32_t rows, int32_t max_columns>
__device__ inline void load_unit_tokens(const Frame& frame, RingCursor& cursor,
                                        const Unit& unit) {
  bool is_down = unit.phase == Phase::down;
  int32_t lane = threadIdx.x % kWarpThreads;
  const TokenSource& tokens = is_down ? frame.p.encoded : frame.p.input;
  ExpertList list = frame.shared.lists[unit.list];
  LaneRows<max_columns> lanes(frame, tokens, list, lane);
  if (is_down) {
    if (lane == 0) ptx::wait_until(&frame.counters->is_encoded[unit.list], 1);
    __syncwarp();
  }
  load_stages<rows, max_columns>(frame, cursor, tokens, lanes, list.count,
                                 matrix_of(frame, unit).num_column_tiles);
}

template <int32_t rows, int32_t max_columns>
__device__ inline void load_tokens(const Frame& frame) {
  QueueCursor queue;
  RingCursor ring;
  while (true) {
    int32_t index = pop_unit(frame.shared.queue, queue);
    if (index == kNoUnit) break;
    Unit unit = frame.unit_at(index);
    if (unit.phase == Phase::combine) continue;
    load_unit_tokens<rows, max_columns>(frame, ring, unit);
  }
  ptx::wait_for_copies();
}

}

#endif
