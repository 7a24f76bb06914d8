#ifndef GLM_KERNELS_EXPERTS_PRODUCTS_HPP
#define GLM_KERNELS_EXPERTS_PRODUCTS_HPP

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

template <int32_t rows>
__device__ inline int32_t own_row(const Unit& unit, int32_t block) {
  return unit.row_unit * rows + block * stream::kWarpgroupRows +
         ProductLane(team_thread()).channel;
}

__device__ inline int32_t channel_of(int32_t packed) {
  return packed / (2 * kPairRows) * kPairRows + packed % kPairRows;
}

template <int32_t rows>
struct UnitScales {
  static constexpr int32_t kBlocks = StageShape<rows>::kRowBlocks;
  float row[kBlocks][2];
  const float* token;

  __device__ void load_rows(const Frame& frame, const Unit& unit,
                            int32_t expert) {
    bool is_down = unit.phase == Phase::down;
    const float* scales = scales_of(matrix_of(frame, unit), expert);
    int32_t width = frame.p.intermediate_size;
    int32_t last = (is_down ? frame.p.hidden_size : 2 * width) - 1;
#pragma unroll
    for (int32_t block = 0; block < kBlocks; ++block) {
      int32_t own = own_row<rows>(unit, block);
      int32_t first = is_down ? own : channel_of(own);
      int32_t second = is_down ? own + 8 : width + first;
      row[block][0] =
          scales == nullptr ? 1.0f : __ldg(scales + min(first, last));
      row[block][1] =
          scales == nullptr ? 1.0f : __ldg(scales + min(second, last));
    }
  }
};

template <int32_t rows, int32_t columns>
__device__ inline void store_hidden(const Frame& frame, const ExpertList& list,
                                    int32_t channel,
                                    const UnitScales<rows>& scales,
                                    int32_t block,
                                    const float (&sum)[columns / 2]) {
  const ExpertsParameters& p = frame.p;
  if (channel >= p.intermediate_size) return;
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

template <int32_t rows, int32_t columns>
__device__ inline void store_partial(const Frame& frame, const ExpertList& list,
                                     int32_t row,
                                     const UnitScales<rows>& scales,
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

template <int32_t rows, int32_t columns>
__device__ inline void store_unit(
    const Frame& frame, const Unit& unit, const ExpertList& list,
    const UnitScales<rows>& scales,
    const float (&sum)[StageShape<rows>::kRowBlocks][columns / 2]) {
  if (ProductLane(team_thread()).channel >= rows) return;
#pragma unroll
  for (int32_t block = 0; block < StageShape<rows>::kRowBlocks; ++block) {
    int32_t row = own_row<rows>(unit, block);
    if (unit.phase == Phase::down)
      store_partial<rows, columns>(frame, list, row, scales, block, sum[block]);
    else
      store_hidden<rows, columns>(frame, list, channel_of(row), scales, block,
                                  sum[block]);
  }
}

struct Work {
  Unit unit;
  int32_t slot;
  uint32_t parity;
  bool is_own;
  TeamShare share;
};

template <int32_t dtype, int32_t rows, int32_t columns, int32_t max_columns>
__device__ inline void run_product(const Frame& frame, RingCursor& ring,
                                   Turn& turn, const Work& work) {
  float sum[StageShape<rows>::kRowBlocks][columns / 2];
  UnitQueue& queue = frame.shared.queue;
  ExpertList list = work.share.of(frame.shared.lists[work.unit.list]);
  UnitScales<rows> scales;
  scales.load_rows(frame, work.unit, list.expert);
  scales.token = queue.token_scale[work.slot] + work.share.first_token;
  if (work.is_own) turn.await();
  multiply_unit<dtype, rows, columns, max_columns>(
      frame, ring, matrix_of(frame, work.unit).num_column_tiles, work.share,
      sum);
  if (work.is_own) turn.pass();
  ptx::barrier_wait(&queue.scaled[work.slot], work.parity);
  store_unit<rows, columns>(frame, work.unit, list, scales, sum);
}

template <int32_t dtype, int32_t rows, int32_t max_columns>
__device__ inline void choose_product(const Frame& frame, RingCursor& ring,
                                      Turn& turn, const Work& work) {
  int32_t count = work.share.of(frame.shared.lists[work.unit.list]).count;
  if constexpr (max_columns > 16)
    if (count > 16)
      return run_product<dtype, rows, 32, max_columns>(frame, ring, turn, work);
  if constexpr (max_columns > 8)
    if (count > 8)
      return run_product<dtype, rows, 16, max_columns>(frame, ring, turn, work);
  run_product<dtype, rows, 8, max_columns>(frame, ring, turn, work);
}

template <int32_t rows>
__device__ inline void skip_unit(const Frame& frame, RingCursor& ring,
                                 const Unit& unit) {
  skip_stages(
      frame.ring, ring,
      StageShape<rows>::stages(matrix_of(frame, unit).num_column_tiles));
}

__device__ inline void report_stored(UnitQueue& queue, int32_t slot) {
  ptx::warp_arrive(&queue.stored[slot]);
}

template <int32_t max_columns>
__device__ inline TeamShare share_of(const Frame& frame, const Unit& unit,
                                     bool is_own) {
  bool is_whole = max_columns <= kTeamTokens || unit.phase == Phase::combine ||
                  frame.shared.lists[unit.list].count <= kTeamTokens;
  return {is_whole || is_own ? 0 : kTeamTokens, is_whole};
}

template <int32_t dtype, int32_t rows, int32_t max_columns>
__device__ inline void run_product_unit(const Frame& frame, RingCursor& ring,
                                        Turn& turn, const Work& work) {
  if (work.is_own || !work.share.is_whole)
    choose_product<dtype, rows, max_columns>(frame, ring, turn, work);
  else
    skip_unit<rows>(frame, ring, work.unit);
}

template <int32_t dtype, int32_t rows, int32_t down_rows, int32_t max_columns>
__device__ inline void run_units(const Frame& frame) {
  QueueCursor queue;
  RingCursor ring;
  Turn turn(frame.shared);
  int32_t team = 0;
  while (true) {
    Work work = {{}, queue.slot, queue.parity, team == own_team(), {0, true}};
    int32_t index = pop_unit(frame.shared.queue, queue);
    if (index == kNoUnit) return;
    work.unit = frame.unit_at(index);
    bool is_combine = work.unit.phase == Phase::combine;
    work.share = share_of<max_columns>(frame, work.unit, work.is_own);
    if (has_height<rows, down_rows>(work.unit))
      run_product_unit<dtype, rows, max_columns>(frame, ring, turn, work);
    else if (!is_combine)
      run_product_unit<dtype, down_rows, max_columns>(frame, ring, turn, work);
    if (!work.share.is_whole) meet_teams();
    if (work.is_own) report_stored(frame.shared.queue, work.slot);
    if (is_combine && frame.is_shared_combine(index))
      run_combine<down_rows>(frame, work.unit,
                             kFinishWarps + threadIdx.x / kWarpThreads,
                             kFinishWarps + kProductWarps);
    if (!is_combine) team ^= 1;
  }
}

}

#endif
