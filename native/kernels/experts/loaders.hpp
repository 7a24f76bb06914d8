#pragma once

#include <cstdint>

#include "native/kernels/experts/shared_state.hpp"
#include "native/ptx/async_copy.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/device_flags.hpp"

namespace glm::kernels::mixture {

__device__ inline const uint8_t* unit_weights(const StreamedMatrix& matrix,
                                              int32_t expert, int32_t row) {
  return matrix.data + expert * matrix.stride +
         int64_t{row / kTileRows} * matrix.num_column_tiles * kTileBytes +
         row % kTileRows * kTileRowBytes;
}

__device__ inline void prefetch_matrix(const StreamedMatrix& matrix) {
  int64_t num_tiles =
      ceil_divide(matrix.num_packed_rows, kTileRows) * matrix.num_column_tiles;
  for (int64_t tile = blockIdx.x; tile < num_tiles; tile += gridDim.x)
    ptx::bulk_prefetch(matrix.data + tile * kTileBytes, kTileBytes);
}

__device__ inline void prefetch_shared_expert(const ExpertsParameters& p) {
  if (p.local.shared_index < 0) return;
  prefetch_matrix(p.shared.gate_up);
  prefetch_matrix(p.shared.down);
}

class Flight {
 public:
  __device__ explicit Flight(int32_t limit) : room_(limit) {}

  __device__ void await_room(const TileRing& ring) {
    if (room_ > 0) {
      --room_;
      return;
    }
    ptx::barrier_wait(&ring.barriers->full[oldest_.stage], oldest_.parity);
    oldest_.advance(ring.num_stages);
  }

 private:
  int32_t room_;
  products::RingCursor oldest_;
};

template <int32_t rows>
__device__ inline void stream_unit(const Frame& frame,
                                   products::RingCursor& cursor, Flight& flight,
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
    flight.await_room(frame.ring);
    ptx::barrier_wait(&frame.ring.barriers->empty[cursor.stage],
                      cursor.parity ^ 1);
    ptx::barrier_expect(full, count * Shape::kTileBytesOfUnit);
#pragma unroll
    for (int32_t i = 0; i < Shape::kTiles; ++i)
      if (i < count)
        ptx::bulk_copy(stage + i * Shape::kTileBytesOfUnit,
                       source + int64_t{tile + i} * kTileBytes,
                       Shape::kTileBytesOfUnit, full, ptx::kEvictFirst);
    cursor.advance(frame.ring.num_stages);
  }
}

__device__ inline void close_epoch(const Frame& frame, uint32_t epoch) {
  frame.p.control->next_unit = 0;
  frame.p.control->epoch = epoch + 1;
}

template <int32_t rows, int32_t down_rows>
__device__ inline void stream_weights(const Frame& frame, uint32_t epoch) {
  products::RingCursor queue;
  products::RingCursor ring;
  Flight flight(frame.p.num_in_flight);
  int32_t index = blockIdx.x;
  uint32_t taken = 0;
  while (true) {
    taken = atomicAdd(&frame.p.control->next_unit, 1u);
    Unit unit = frame.unit_at(index);
    push_unit(frame.shared.queue, queue, unit);
    if (unit.phase == Phase::end) break;
    if (has_height<rows, down_rows>(unit))
      stream_unit<rows>(frame, ring, flight, unit);
    else if (!unit.is_combine())
      stream_unit<down_rows>(frame, ring, flight, unit);
    index = static_cast<int32_t>(gridDim.x + taken);
  }
  if (taken == frame.num_units() + gridDim.x - 1) close_epoch(frame, epoch);
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
      if (i * kRowsAtOnce >= list.count) break;
      int32_t row = min(i * kRowsAtOnce + lane / kLanesPerRow, list.count - 1);
      source[i] = tokens.data + tokens.row_of(frame.order[list.begin + row]) *
                                    tokens.row_stride;
    }
  }

  __device__ void copy(uint32_t block, const TokenSource& tokens, int32_t tile,
                       int32_t count, int32_t lane) const {
    int32_t within = lane % kLanesPerRow * kChunkBytes;
    int32_t byte = tile * kTileRowBytes + within;
    int32_t bytes = min(kChunkBytes, max(0, tokens.row_bytes - byte));
    int32_t inside = bytes > 0 ? byte : 0;
    uint32_t place = block + swizzle(lane / kLanesPerRow, within);
    uint32_t flip = kRowsAtOnce * kChunkBytes;
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) {
      if (i * kRowsAtOnce >= count) break;
      ptx::async_copy(
          (place ^ (i % 2 * flip)) + i * kRowsAtOnce * kTileRowBytes,
          source[i] + inside, bytes);
    }
  }
};

template <int32_t rows, int32_t max_columns>
__device__ inline void load_stages(const Frame& frame,
                                   products::RingCursor& cursor,
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
    cursor.advance(frame.ring.num_stages);
  }
}

class EncodedLists {
 public:
  __device__ void await(const Frame& frame, int32_t list, int32_t lane) {
    while (!is_known(list)) {
      first_ = list;
      bool is_ready =
          list + lane < frame.shared.num_lists &&
          ptx::load_acquire(&frame.counters->is_encoded[list + lane]) == 1u;
      ready_ = __ballot_sync(kWholeWarp, is_ready);
    }
    __syncwarp();
  }

 private:
  __device__ bool is_known(int32_t list) const {
    uint32_t distance = static_cast<uint32_t>(list - first_);
    return distance < static_cast<uint32_t>(kWarpThreads) &&
           (ready_ >> distance & 1);
  }

  int32_t first_ = 0;
  uint32_t ready_ = 0;
};

__device__ inline float list_scale(const Frame& frame, const Unit& unit,
                                   const ExpertList& list, int32_t column) {
  const ExpertsParameters& p = frame.p;
  if (p.input_scale == nullptr || column >= list.count) return 1.0f;
  uint32_t assignment = frame.order[list.begin + column];
  return __ldcg(unit.phase == Phase::down
                    ? p.code_scale + assignment
                    : p.input_scale + p.input.row_of(assignment));
}

template <int32_t rows, int32_t max_columns>
__device__ inline void load_unit_tokens(const Frame& frame,
                                        products::RingCursor& cursor,
                                        EncodedLists& encoded, const Unit& unit,
                                        float* scales) {
  int32_t lane = threadIdx.x % kWarpThreads;
  bool is_down = unit.phase == Phase::down;
  if (is_down) encoded.await(frame, unit.list, lane);
  ExpertList list = frame.shared.lists[unit.list];
  const TokenSource& tokens = is_down ? frame.p.encoded : frame.p.input;
  float scale = list_scale(frame, unit, list, lane);
  LaneRows<max_columns> lanes(frame, tokens, list, lane);
  load_stages<rows, max_columns>(frame, cursor, tokens, lanes, list.count,
                                 matrix_of(frame, unit).num_column_tiles);
  scales[lane] = scale;
}

template <int32_t rows, int32_t down_rows, int32_t max_columns>
__device__ inline void load_tokens(const Frame& frame) {
  products::RingCursor cursor;
  products::RingCursor ring;
  EncodedLists encoded;
  UnitQueue& queue = frame.shared.queue;
  while (true) {
    int32_t slot = cursor.stage;
    Unit unit = pop_unit(queue, cursor);
    if (unit.phase == Phase::end) break;
    if (has_height<rows, down_rows>(unit))
      load_unit_tokens<rows, max_columns>(frame, ring, encoded, unit,
                                          queue.token_scale[slot]);
    else if (!unit.is_combine())
      load_unit_tokens<down_rows, max_columns>(frame, ring, encoded, unit,
                                               queue.token_scale[slot]);
    ptx::warp_arrive(&queue.scaled[slot]);
  }
  ptx::wait_for_copies();
}

}
