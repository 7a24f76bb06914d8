#ifndef GLM_KERNELS_EXPERTS_PRODUCTS_HPP
#define GLM_KERNELS_EXPERTS_PRODUCTS_HPP

#include <cstdint>

#include "native/kernels/experts/combine.hpp"
#include "native/kernels/experts/shared_state.hpp"
#include "native/kernels/experts/unit_product.hpp"
#include "native/ptx/device_flags.hpp"

namespace glm::kernels::mixture {

using stream::ProductLane;

struct RowScales {
  const float* row_scale;
  __device__ float at(int32_t row) const {
    return row_scale == nullptr ? 1.0f : __ldg(row_scale + row);
  }
};

__device__ inline RowScales scales_of(const StreamedMatrix& matrix,
                                      int32_t expert) {
  if (matrix.row_scale == nullptr) return {nullptr};
  return {reinterpret_cast<const float*>(
      reinterpret_cast<const uint8_t*>(matrix.row_scale) +
      expert * matrix.scale_stride)};
}

__device__ inline float swiglu(float gate, float up) {
  return gate / (1.0f + expf(-gate)) * up;
}

template <int32_t rows>
__device__ inline int32_t own_row(const Unit& unit, int32_t block) {
  ProductLane lane(team_thread());
  if (rows < stream::kWarpgroupRows && lane.channel >= rows) return -1;
  return unit.row_unit * rows + block * stream::kWarpgroupRows + lane.channel;
}

template <int32_t columns>
__device__ inline void store_hidden(const Frame& frame, const ExpertList& list,
                                    int32_t packed,
                                    const float (&sum)[columns / 2]) {
  const ExpertsParameters& p = frame.p;
  int32_t channel = packed / (2 * kPairRows) * kPairRows + packed % kPairRows;
  if (packed < 0 || channel >= p.intermediate_size) return;
  ProductLane lane(team_thread());
  RowScales scales = scales_of(p.gate_up, list.expert);
  float gate_scale = scales.at(channel);
  float up_scale = scales.at(p.intermediate_size + channel);
#pragma unroll
  for (int32_t i = 0; i < columns / 2; ++i) {
    int32_t column = lane.token_of(i);
    if (i / 2 % 2 == 1 || column >= list.count) continue;
    int32_t assignment = frame.order[list.begin + column];
    float scale = p.input_scale == nullptr
                      ? 1.0f
                      : __ldcg(p.input_scale + assignment / p.top_k);
    p.hidden[int64_t{assignment} * p.hidden_stride + channel] =
        swiglu(sum[i] * gate_scale * scale, sum[i + 2] * up_scale * scale);
  }
}

template <int32_t columns>
__device__ inline void store_partial(const Frame& frame, const ExpertList& list,
                                     int32_t row,
                                     const float (&sum)[columns / 2]) {
  const ExpertsParameters& p = frame.p;
  if (row < 0) return;
  ProductLane lane(team_thread());
  RowScales scales = scales_of(p.down, list.expert);
  float scale[2] = {row < p.hidden_size ? scales.at(row) : 0.0f,
                    row + 8 < p.hidden_size ? scales.at(row + 8) : 0.0f};
#pragma unroll
  for (int32_t i = 0; i < columns / 2; ++i) {
    int32_t column = lane.token_of(i);
    int32_t half = i / 2 % 2;
    if (column >= list.count || row + half * 8 >= p.hidden_size) continue;
    int32_t assignment = frame.order[list.begin + column];
    float code_scale =
        p.input_scale == nullptr ? 1.0f : __ldcg(p.code_scale + assignment);
    p.partial[int64_t{assignment} * p.partial_stride + row + half * 8] =
        sum[i] * scale[half] * code_scale;
  }
}

template <int32_t rows>
__device__ inline void run_combine(const Frame& frame, const Unit& unit) {
  constexpr int32_t kRowItems = rows / kLaneRows;
  const ExpertsParameters& p = frame.p;
  int32_t thread = team_thread();
  int32_t row = unit.row_unit * rows + thread % kRowItems * kLaneRows;
  int32_t first = unit.group * p.tokens_per_group + thread / kRowItems;
  int32_t end = min(p.num_tokens, (unit.group + 1) * p.tokens_per_group);
  bool is_inside = first < end && row < p.hidden_size;
  RowSum own(p, is_inside ? first : 0, is_inside ? row : 0);
  if (thread % kWarpThreads == 0)
    ptx::wait_until(&frame.counters->down_done[unit.row_unit],
                    static_cast<uint32_t>(frame.shared.num_lists));
  __syncwarp();
  if (is_inside) sum_tokens(own, end, kTeamThreads / kRowItems);
}

template <int32_t dtype, int32_t rows, int32_t columns, int32_t max_columns>
__device__ inline void run_product(const Frame& frame, RingCursor& ring,
                                   Turn& turn, const Unit& unit) {
  constexpr int32_t kBlocks = StageShape<rows>::kRowBlocks;
  float sum[kBlocks][columns / 2];
  bool is_down = unit.phase == Phase::down;
  ExpertList list = frame.shared.lists[unit.list];
  turn.await();
  multiply_unit<dtype, rows, columns, max_columns>(
      frame, ring, matrix_of(frame, unit).num_column_tiles, sum);
  turn.pass();
#pragma unroll
  for (int32_t block = 0; block < kBlocks; ++block) {
    int32_t row = own_row<rows>(unit, block);
    if (is_down) {
      store_partial<columns>(frame, list, row, sum[block]);
    } else {
      store_hidden<columns>(frame, list, row, sum[block]);
    }
  }
}

template <int32_t dtype, int32_t rows, int32_t max_columns>
__device__ inline void choose_product(const Frame& frame, RingCursor& ring,
                                      Turn& turn, const Unit& unit) {
  int32_t count = frame.shared.lists[unit.list].count;
  if constexpr (max_columns > 32)
    if (count > 32)
      return run_product<dtype, rows, 64, max_columns>(frame, ring, turn, unit);
  if constexpr (max_columns > 16)
    if (count > 16)
      return run_product<dtype, rows, 32, max_columns>(frame, ring, turn, unit);
  if constexpr (max_columns > 8)
    if (count > 8)
      return run_product<dtype, rows, 16, max_columns>(frame, ring, turn, unit);
  run_product<dtype, rows, 8, max_columns>(frame, ring, turn, unit);
}

template <int32_t rows>
__device__ inline void skip_unit(const Frame& frame, RingCursor& ring,
                                 const Unit& unit) {
  if (unit.phase == Phase::combine) return;
  skip_stages(
      frame.ring, ring,
      StageShape<rows>::stages(matrix_of(frame, unit).num_column_tiles));
}

__device__ inline void report_stored(UnitQueue& queue, int32_t slot) {
  __syncwarp();
  if (threadIdx.x % kWarpThreads == 0) ptx::barrier_arrive(&queue.stored[slot]);
}

template <int32_t dtype, int32_t rows, int32_t max_columns>
__device__ inline void run_units(const Frame& frame) {
  QueueCursor queue;
  RingCursor ring;
  Turn turn(frame.shared);
  for (int32_t team = 0;; team ^= 1) {
    int32_t slot = queue.slot;
    int32_t index = pop_unit(frame.shared.queue, queue);
    if (index == kNoUnit) return;
    Unit unit = frame.unit_at(index);
    if (team != own_team()) {
      skip_unit<rows>(frame, ring, unit);
    } else if (unit.phase == Phase::combine) {
      run_combine<rows>(frame, unit);
    } else {
      choose_product<dtype, rows, max_columns>(frame, ring, turn, unit);
      report_stored(frame.shared.queue, slot);
    }
  }
}

}

#endif
