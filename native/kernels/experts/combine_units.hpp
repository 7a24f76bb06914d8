#pragma once

#include <cstdint>

#include "native/kernels/experts/combine.hpp"
#include "native/kernels/experts/shared_state.hpp"
#include "native/ptx/device_flags.hpp"

namespace glm::kernels::mixture {

template <int32_t row_items>
__device__ inline void await_down_rows(const Frame& frame, int32_t row_unit) {
  if (threadIdx.x % row_items == 0 && row_unit < frame.num_down_rows())
    ptx::wait_until(&frame.counters->down_done[row_unit],
                    static_cast<uint32_t>(frame.shared.num_lists));
  __syncwarp();
}

template <int32_t rows>
__device__ inline void run_combine(const Frame& frame, const Unit& unit,
                                   int32_t warp, int32_t num_warps) {
  constexpr int32_t kRowItems = rows / kLaneRows;
  constexpr int32_t kItemsOfWarp = kWarpThreads / kRowItems;
  const ExpertsParameters& p = frame.p;
  int32_t lane = threadIdx.x % kWarpThreads;
  int32_t item = warp * kItemsOfWarp + lane / kRowItems;
  int32_t row_unit = unit.row_unit + item % p.rows_per_combine;
  int32_t row = row_unit * rows + lane % kRowItems * kLaneRows;
  int32_t first = unit.group * p.tokens_per_group + item / p.rows_per_combine;
  int32_t end = min(p.num_tokens, (unit.group + 1) * p.tokens_per_group);
  bool is_inside = first < end && row < p.hidden_size;
  RowSum own(p, is_inside ? first : 0, is_inside ? row : 0);
  await_down_rows<kRowItems>(frame, row_unit);
  if (is_inside)
    own.add_tokens(end, num_warps * kItemsOfWarp / p.rows_per_combine);
  __syncwarp();
}

}
