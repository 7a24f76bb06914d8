#pragma once

#include <cstdint>

#include "native/kernels/experts/combine_units.hpp"
#include "native/kernels/experts/encode_hidden.hpp"
#include "native/kernels/experts/shared_state.hpp"
#include "native/ptx/device_flags.hpp"

namespace glm::kernels::mixture {

__device__ inline bool is_last_of_list(const Frame& frame, const Unit& unit,
                                       int32_t thread) {
  if (thread == 0) {
    uint32_t done =
        ptx::fetch_add(&frame.counters->gate_up_done[unit.list], 1u);
    frame.shared.is_last =
        done + 1 ==
        static_cast<uint32_t>(frame.matrices_of(unit).gate_up.num_row_units);
  }
  meet_finish_warps();
  bool is_last = frame.shared.is_last;
  meet_finish_warps();
  return is_last;
}

template <int32_t dtype, int32_t max_columns>
__device__ inline void finish_gate_up(const Frame& frame, const Unit& unit,
                                      int32_t thread) {
  if (!is_last_of_list(frame, unit, thread)) return;
  const ExpertList& list = frame.shared.lists[unit.list];
  const int32_t width = frame.matrices_of(unit).width;
  if constexpr (max_columns == kFewColumns)
    encode_few_rows<dtype>(frame, list, width, thread);
  else
    encode_list<dtype>(frame, list, width, thread / kWarpThreads,
                       thread % kWarpThreads);
  meet_finish_warps();
  if (thread != 0) return;
  ptx::store_release(&frame.counters->is_encoded[unit.list], 1u);
}

__device__ inline void finish_down(const Frame& frame, const Unit& unit) {
  ptx::add_release(&frame.counters->down_done[unit.row_unit], 1u);
}

template <int32_t dtype, int32_t rows, int32_t max_columns>
__device__ inline void finish_unit(const Frame& frame, const Unit& unit,
                                   int32_t thread) {
  if (unit.phase == Phase::gate_up)
    return finish_gate_up<dtype, max_columns>(frame, unit, thread);
  bool is_shared = unit.phase == Phase::shared_combine;
  run_combine<rows>(frame, unit, thread / kWarpThreads,
                    kFinishWarps + (is_shared ? kProductWarps : 0));
}

template <int32_t dtype, int32_t rows, int32_t max_columns>
__device__ inline void finish_units(const Frame& frame) {
  products::RingCursor cursor;
  UnitQueue& queue = frame.shared.queue;
  int32_t thread = threadIdx.x - kFinishWarp * kWarpThreads;
  int32_t reporter = 0;
  while (true) {
    Unit unit = read_unit(queue, cursor);
    if (unit.phase == Phase::end) return;
    bool is_down = unit.phase == Phase::down;
    bool is_own = !is_down || reporter == thread / kWarpThreads;
    if (is_down) reporter = (reporter + 1) % kFinishWarps;
    if (is_own) {
      ptx::barrier_wait(&queue.stored[cursor.stage], cursor.parity);
      if (!is_down)
        finish_unit<dtype, rows, max_columns>(frame, unit, thread);
      else if (thread % kWarpThreads == 0)
        finish_down(frame, unit);
    }
    release_unit(queue, cursor);
  }
}

}
