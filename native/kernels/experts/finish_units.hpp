#ifndef GLM_KERNELS_EXPERTS_FINISH_UNITS_HPP
#define GLM_KERNELS_EXPERTS_FINISH_UNITS_HPP

#include <cstdint>

#include "native/kernels/experts/combine.hpp"
#include "native/kernels/experts/encode_hidden.hpp"
#include "native/kernels/experts/shared_state.hpp"
#include "native/ptx/device_flags.hpp"

namespace glm::kernels::mixture {

__device__ inline void meet_finish_warps() {
  asm volatile("bar.sync 3, %0;" ::"n"(kFinishThreads) : "memory");
}

__device__ inline bool is_last_of_list(const Frame& frame, const Unit& unit,
                                       int32_t thread) {
  if (thread == 0) {
    uint32_t done =
        ptx::fetch_add(&frame.counters->gate_up_done[unit.list], 1u);
    frame.shared.is_last =
        done + 1 == static_cast<uint32_t>(frame.p.gate_up.num_row_units);
  }
  meet_finish_warps();
  bool is_last = frame.shared.is_last;
  meet_finish_warps();
  return is_last;
}

template <int32_t dtype>
__device__ inline void finish_gate_up(const Frame& frame, const Unit& unit,
                                      int32_t thread) {
  if (!is_last_of_list(frame, unit, thread)) return;
  encode_list<dtype>(frame, frame.shared.lists[unit.list],
                     thread / kWarpThreads, thread % kWarpThreads);
  meet_finish_warps();
  if (thread != 0) return;
  ptx::store_release(&frame.counters->is_encoded[unit.list], 1u);
}

__device__ inline void finish_down(const Frame& frame, const Unit& unit) {
  ptx::add_release(&frame.counters->down_done[unit.row_unit], 1u);
}

template <int32_t rows>
__device__ inline void run_combine(const Frame& frame, const Unit& unit,
                                   int32_t thread) {
  constexpr int32_t kRowItems = rows / kLaneRows;
  const ExpertsParameters& p = frame.p;
  int32_t row = unit.row_unit * rows + thread % kRowItems * kLaneRows;
  int32_t first = unit.group * p.tokens_per_group + thread / kRowItems;
  int32_t end = min(p.num_tokens, (unit.group + 1) * p.tokens_per_group);
  bool is_inside = first < end && row < p.hidden_size;
  RowSum own(p, is_inside ? first : 0, is_inside ? row : 0);
  if (thread == 0)
    ptx::wait_until(&frame.counters->down_done[unit.row_unit],
                    static_cast<uint32_t>(frame.shared.num_lists));
  meet_finish_warps();
  if (is_inside) sum_tokens(own, end, kFinishThreads / kRowItems);
  __syncwarp();
}

template <int32_t dtype, int32_t rows>
__device__ inline void finish_unit(const Frame& frame, const Unit& unit,
                                   int32_t thread) {
  if (unit.phase == Phase::gate_up)
    return finish_gate_up<dtype>(frame, unit, thread);
  if (unit.phase == Phase::combine)
    return run_combine<rows>(frame, unit, thread);
  if (thread == 0) finish_down(frame, unit);
}

template <int32_t dtype, int32_t rows>
__device__ inline void finish_units(const Frame& frame) {
  QueueCursor cursor;
  UnitQueue& queue = frame.shared.queue;
  int32_t thread = threadIdx.x - kFinishWarp * kWarpThreads;
  while (true) {
    int32_t index = read_unit(queue, cursor);
    if (index == kNoUnit) return;
    ptx::barrier_wait(&queue.stored[cursor.slot], cursor.parity);
    finish_unit<dtype, rows>(frame, frame.unit_at(index), thread);
    release_unit(queue, cursor);
  }
}

}

#endif
