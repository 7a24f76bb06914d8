#ifndef GLM_KERNELS_EXPERTS_PRODUCTS_HPP
#define GLM_KERNELS_EXPERTS_PRODUCTS_HPP

#include <cstdint>

#include "native/kernels/experts/combine.hpp"
#include "native/kernels/experts/encode_hidden.hpp"
#include "native/kernels/experts/shared_state.hpp"
#include "native/kernels/stream/tile_product.hpp"
#include "native/ptx/device_flags.hpp"

namespace glm::kernels::mixture {

using stream::ProductLane;
using stream::RingCursor;

constexpr int32_t kWarpgroupThreads = 128;

__device__ inline void meet_product_warps() {
  asm volatile("bar.sync 1, %0;" ::"n"(kProductThreads) : "memory");
}

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

template <int32_t dtype, int32_t columns>
__device__ inline void multiply_unit(const Frame& frame, RingCursor& cursor,
                                     int32_t num_tiles,
                                     float (&sum)[columns / 2]) {
  int32_t warpgroup = threadIdx.x / kWarpgroupThreads;
  stream::clear(sum);
  for (int32_t tile = 0; tile < num_tiles; ++tile) {
    const uint8_t* stage =
        frame.ring.stages + cursor.stage * frame.ring.stage_bytes;
    ptx::barrier_wait(&frame.ring.barriers->full[cursor.stage], cursor.parity);
    ptx::proxy_fence();
    stream::add_tile<dtype, columns>(
        sum, stage + warpgroup * stream::kWarpgroupBytes, stage + kTileBytes);
    if (threadIdx.x % kWarpThreads == 0)
      ptx::barrier_arrive(&frame.ring.barriers->empty[cursor.stage]);
    cursor.advance(frame.ring);
  }
}

__device__ inline float swiglu(float gate, float up) {
  return gate / (1.0f + expf(-gate)) * up;
}

template <int32_t columns>
__device__ inline void store_hidden(const Frame& frame, const Unit& unit,
                                    const float (&sum)[columns / 2]) {
  const ExpertsParameters& p = frame.p;
  ExpertList list = frame.shared.lists[unit.list];
  ProductLane lane(threadIdx.x % kWarpgroupThreads);
  int32_t packed = unit.tile * kTileRows +
                   threadIdx.x / kWarpgroupThreads * stream::kWarpgroupRows +
                   lane.channel;
  int32_t channel = packed / (2 * kPairRows) * kPairRows + packed % kPairRows;
  if (channel >= p.intermediate_size) return;
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
__device__ inline void store_partial(const Frame& frame, const Unit& unit,
                                     const float (&sum)[columns / 2]) {
  const ExpertsParameters& p = frame.p;
  ExpertList list = frame.shared.lists[unit.list];
  ProductLane lane(threadIdx.x % kWarpgroupThreads);
  int32_t row = unit.tile * kTileRows +
                threadIdx.x / kWarpgroupThreads * stream::kWarpgroupRows +
                lane.channel;
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

template <int32_t dtype>
__device__ inline void finish_gate_up(const Frame& frame, const Unit& unit) {
  meet_product_warps();
  if (threadIdx.x == 0) {
    __threadfence();
    uint32_t done =
        ptx::fetch_add(&frame.counters->gate_up_done[unit.list], 1u);
    frame.shared.is_last =
        done + 1 == static_cast<uint32_t>(frame.p.gate_up.num_row_tiles);
  }
  meet_product_warps();
  if (!frame.shared.is_last) return;
  encode_list<dtype>(frame, frame.shared.lists[unit.list]);
  meet_product_warps();
  if (threadIdx.x == 0) {
    __threadfence();
    ptx::store_release(&frame.counters->is_encoded[unit.list], 1u);
  }
}

__device__ inline void finish_down(const Frame& frame, const Unit& unit) {
  meet_product_warps();
  if (threadIdx.x == 0) {
    __threadfence();
    ptx::add_release(&frame.counters->down_done[unit.tile], 1u);
  }
}

__device__ inline void run_combine(const Frame& frame, const Unit& unit) {
  if (threadIdx.x == 0)
    ptx::wait_until(&frame.counters->down_done[unit.tile],
                    static_cast<uint32_t>(frame.shared.num_lists));
  meet_product_warps();
  combine_tile(frame.p, unit.tile, unit.group, kProductThreads);
}

template <int32_t dtype, int32_t columns>
__device__ inline void run_product(const Frame& frame, RingCursor& ring,
                                   const Unit& unit) {
  float sum[columns / 2];
  bool is_down = unit.phase == Phase::down;
  int32_t num_tiles = is_down ? frame.p.down.num_column_tiles
                              : frame.p.gate_up.num_column_tiles;
  multiply_unit<dtype, columns>(frame, ring, num_tiles, sum);
  if (is_down) {
    store_partial<columns>(frame, unit, sum);
  } else {
    store_hidden<columns>(frame, unit, sum);
  }
}

template <int32_t dtype, int32_t max_columns>
__device__ inline void choose_product(const Frame& frame, RingCursor& ring,
                                      const Unit& unit) {
  int32_t count = frame.shared.lists[unit.list].count;
  if constexpr (max_columns > 32)
    if (count > 32) return run_product<dtype, 64>(frame, ring, unit);
  if constexpr (max_columns > 16)
    if (count > 16) return run_product<dtype, 32>(frame, ring, unit);
  if constexpr (max_columns > 8)
    if (count > 8) return run_product<dtype, 16>(frame, ring, unit);
  run_product<dtype, 8>(frame, ring, unit);
}

template <int32_t dtype, int32_t max_columns>
__device__ inline void run_units(const Frame& frame) {
  QueueCursor queue;
  RingCursor ring;
  while (true) {
    int32_t index = pop_unit(frame.shared.queue, queue);
    if (index == kNoUnit) return;
    Unit unit = frame.unit_at(index);
    if (unit.phase == Phase::combine) {
      run_combine(frame, unit);
      continue;
    }
    choose_product<dtype, max_columns>(frame, ring, unit);
    if (unit.phase == Phase::down) {
      finish_down(frame, unit);
    } else {
      finish_gate_up<dtype>(frame, unit);
    }
  }
}

}

#endif
