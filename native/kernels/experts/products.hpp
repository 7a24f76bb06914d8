#pragma once

#include <cstdint>

#include "native/kernels/experts/combine_units.hpp"
#include "native/kernels/experts/shared_state.hpp"
#include "native/kernels/experts/unit_product.hpp"
#include "native/kernels/rows/swiglu.hpp"
#include "native/ptx/mbarrier.hpp"

namespace glm::kernels::mixture {

using stream::ProductLane;

__device__ inline const float* scales_of(const StreamedMatrix& matrix,
                                         int32_t expert) {
  if (matrix.row_scale == nullptr) return nullptr;
  return reinterpret_cast<const float*>(
      reinterpret_cast<const uint8_t*>(matrix.row_scale) +
      expert * matrix.scale_stride);
}

template <typename Shape>
__device__ inline int32_t own_row(const Unit& unit, int32_t block) {
  return unit.row_unit * Shape::kRows +
         (Shape::first_block() + block) * stream::kWarpgroupRows +
         ProductLane(team_thread()).channel;
}

__device__ inline int32_t channel_of(int32_t packed) {
  return packed / (2 * kPairRows) * kPairRows + packed % kPairRows;
}

template <typename Shape>
struct UnitScales {
  static constexpr int32_t kBlocks = Shape::kBlocks;
  float row[kBlocks][2];
  const float* token;

  __device__ void load_rows(const Frame& frame, const Unit& unit,
                            int32_t expert) {
    bool is_down = unit.phase == Phase::down;
    const float* scales = scales_of(matrix_of(frame, unit), expert);
    int32_t width = frame.matrices_of(unit).width;
    int32_t last = (is_down ? frame.p.hidden_size : 2 * width) - 1;
#pragma unroll
    for (int32_t block = 0; block < kBlocks; ++block) {
      int32_t own = own_row<Shape>(unit, block);
      int32_t first = is_down ? own : channel_of(own);
      int32_t second = is_down ? own + 8 : width + first;
      row[block][0] =
          scales == nullptr ? 1.0f : __ldg(scales + min(first, last));
      row[block][1] =
          scales == nullptr ? 1.0f : __ldg(scales + min(second, last));
    }
  }
};

template <typename Shape, int32_t columns>
__device__ inline void store_hidden(const Frame& frame, const ExpertList& list,
                                    int32_t width, int32_t channel,
                                    const UnitScales<Shape>& scales,
                                    int32_t block,
                                    const float (&sum)[columns / 2]) {
  const ExpertsParameters& p = frame.p;
  if (channel >= width) return;
  ProductLane lane(team_thread());
#pragma unroll
  for (int32_t i = 0; i < columns / 4; ++i) {
    int32_t column = lane.token + i / 2 * 8 + i % 2;
    if (column >= list.count) continue;
    int32_t assignment = frame.order[list.begin + column];
    int32_t gate = i / 2 * 4 + i % 2;
    float token = scales.token[column];
    p.hidden[int64_t{assignment} * p.hidden_stride + channel] =
        swiglu(sum[gate] * scales.row[block][0] * token,
               sum[gate + 2] * scales.row[block][1] * token);
  }
}

__device__ inline float rounded(float value) {
  return __bfloat162float(__float2bfloat16_rn(value));
}

template <typename Shape, int32_t columns>
__device__ inline void store_partial(const Frame& frame, const ExpertList& list,
                                     int32_t row,
                                     const UnitScales<Shape>& scales,
                                     int32_t block,
                                     const float (&sum)[columns / 2]) {
  const ExpertsParameters& p = frame.p;
  ProductLane lane(team_thread());
#pragma unroll
  for (int32_t i = 0; i < columns / 4; ++i) {
    int32_t column = lane.token + i / 2 * 8 + i % 2;
    if (column >= list.count) continue;
    int32_t assignment = frame.order[list.begin + column];
    float* place = p.partial + int64_t{assignment} * p.partial_stride + row;
    int32_t upper = i / 2 * 4 + i % 2;
    float token = scales.token[column];
    if (row < p.hidden_size)
      place[0] = rounded(sum[upper] * scales.row[block][0] * token);
    if (row + 8 < p.hidden_size)
      place[8] = rounded(sum[upper + 2] * scales.row[block][1] * token);
  }
}

template <typename Shape, int32_t columns>
__device__ inline void store_unit(
    const Frame& frame, const Unit& unit, const ExpertList& list,
    const UnitScales<Shape>& scales,
    const float (&sum)[Shape::kBlocks][columns / 2]) {
  if (ProductLane(team_thread()).channel >= Shape::kRows) return;
#pragma unroll
  for (int32_t block = 0; block < Shape::kBlocks; ++block) {
    int32_t row = own_row<Shape>(unit, block);
    if (unit.phase == Phase::down)
      store_partial<Shape, columns>(frame, list, row, scales, block,
                                    sum[block]);
    else
      store_hidden<Shape, columns>(frame, list, frame.matrices_of(unit).width,
                                   channel_of(row), scales, block, sum[block]);
  }
}

struct Work {
  Unit unit;
  int32_t slot;
  uint32_t parity;
};

template <int32_t dtype, typename Shape, int32_t columns>
__device__ inline void run_product(const Frame& frame,
                                   products::RingCursor& ring, Turn& turn,
                                   const Work& work) {
  float sum[Shape::kBlocks][columns / 2];
  UnitQueue& queue = frame.shared.queue;
  ExpertList list = frame.shared.lists[work.unit.list];
  UnitScales<Shape> scales;
  scales.load_rows(frame, work.unit, list.expert);
  scales.token = queue.token_scale[work.slot];
  if constexpr (!Shape::kSharesUnits) turn.await();
  multiply_unit<dtype, Shape, columns>(
      frame, ring, matrix_of(frame, work.unit).num_column_tiles, sum);
  if constexpr (!Shape::kSharesUnits) turn.pass();
  ptx::barrier_wait(&queue.scaled[work.slot], work.parity);
  store_unit<Shape, columns>(frame, work.unit, list, scales, sum);
}

template <int32_t dtype, typename Shape>
__device__ inline void choose_product(const Frame& frame,
                                      products::RingCursor& ring, Turn& turn,
                                      const Work& work) {
  int32_t count = frame.shared.lists[work.unit.list].count;
  if constexpr (Shape::kMaxColumns > 16)
    if (count > 16)
      return run_product<dtype, Shape, 32>(frame, ring, turn, work);
  if constexpr (Shape::kMaxColumns > 8)
    if (count > 8)
      return run_product<dtype, Shape, 16>(frame, ring, turn, work);
  run_product<dtype, Shape, 8>(frame, ring, turn, work);
}

template <typename Shape>
__device__ inline void skip_unit(const Frame& frame, products::RingCursor& ring,
                                 const Unit& unit) {
  skip_stages(frame.ring, ring,
              Shape::stages(matrix_of(frame, unit).num_column_tiles));
}

__device__ inline void report_stored(UnitQueue& queue, int32_t slot) {
  ptx::warp_arrive(&queue.stored[slot]);
}

template <int32_t dtype, typename Shape>
__device__ inline void run_product_unit(const Frame& frame,
                                        products::RingCursor& ring, Turn& turn,
                                        const Work& work, bool is_own) {
  if (is_own)
    choose_product<dtype, Shape>(frame, ring, turn, work);
  else
    skip_unit<Shape>(frame, ring, work.unit);
}

template <int32_t dtype, int32_t rows, int32_t down_rows, int32_t max_columns>
__device__ inline void run_units(const Frame& frame) {
  using GateUp = TeamShape<rows, max_columns>;
  using Down = TeamShape<down_rows, max_columns>;
  products::RingCursor queue;
  products::RingCursor ring;
  Turn turn(frame.shared);
  int32_t team = 0;
  while (true) {
    Work work = {{}, queue.stage, queue.parity};
    work.unit = pop_unit(frame.shared.queue, queue);
    if (work.unit.phase == Phase::end) return;
    bool is_combine = work.unit.is_combine();
    bool is_own = GateUp::kSharesUnits || team == own_team();
    if (has_height<rows, down_rows>(work.unit))
      run_product_unit<dtype, GateUp>(frame, ring, turn, work, is_own);
    else if (!is_combine)
      run_product_unit<dtype, Down>(frame, ring, turn, work, is_own);
    if (is_own) report_stored(frame.shared.queue, work.slot);
    if (work.unit.phase == Phase::shared_combine)
      run_combine<down_rows>(frame, work.unit,
                             kFinishWarps + threadIdx.x / kWarpThreads,
                             kFinishWarps + kProductWarps);
    if (!is_combine) team ^= 1;
  }
}

}
