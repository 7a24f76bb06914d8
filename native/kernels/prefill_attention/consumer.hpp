#pragma once

#include "native/kernels/prefill_attention/store.hpp"

namespace glm::kernels::prefill_attention_detail {

template <typename Tile>
struct Accumulators {
  float scores[Tile::kKeys / 2];
  uint32_t weights[Tile::kKeys / 16][4];
  float output[Tile::kValueParts][Tile::kValueColumns / 2];
  RowState rows;
  float factor;
};

template <typename Tile>
struct Consumer {
  const Parameters& parameters;
  Control<Tile>& control;
  const Buffers<Tile>& buffers;
  int32_t index;
  Cursor<Tile::kStages> keys;
  Cursor<Tile::kStages> values;
  Cursor<Tile::kQueryBuffers> queries;

  __device__ void multiply_keys(Accumulators<Tile>& state);
  __device__ void multiply_values(Accumulators<Tile>& state, bool accumulate);
  __device__ void begin(const Item& item, Accumulators<Tile>& state);
  template <bool masked>
  __device__ void advance(const Item& item, int32_t tile,
                          Accumulators<Tile>& state);
  __device__ void finish(Accumulators<Tile>& state, bool accumulate);
  __device__ void attend(const Item& item, Accumulators<Tile>& state);
  __device__ void take_turn();
  __device__ void pass_turn();
};

template <int32_t parts, int32_t count>
__device__ inline void hold_all(float (&output)[parts][count]) {
#pragma unroll
  for (int32_t part = 0; part < parts; ++part) ptx::hold(output[part]);
}

__device__ inline uint64_t value_descriptor(uint32_t address,
                                            int32_t half_stride) {
  constexpr uint64_t kLeadingField = uint64_t{0x3FFF} << 16;
  return (ptx::swizzled_descriptor(address) & ~kLeadingField) |
         uint64_t(half_stride >> 4) << 16;
}

template <typename Tile>
__device__ inline void row_positions(const Item& item, int32_t group,
                                     int32_t consumer,
                                     int32_t (&positions)[kThreadRows]) {
  const int32_t thread = threadIdx.x % kWarpgroupThreads;
  const int32_t row = item.first_row + consumer * kConsumerRows +
                      thread / kWarpThreads * 16 + thread % kWarpThreads / 4;
#pragma unroll
  for (int32_t i = 0; i < kThreadRows; ++i)
    positions[i] =
        item.tokens_before + min(row + 8 * i, item.num_rows - 1) / group;
}

template <typename Tile>
__device__ void Consumer<Tile>::multiply_keys(Accumulators<Tile>& state) {
  const uint64_t query = ptx::swizzled_descriptor(
      ptx::shared_address(buffers.query(queries.slot)) +
      index * kConsumerRows * kHalfBytes);
  const uint64_t key =
      ptx::swizzled_descriptor(ptx::shared_address(buffers.key(keys.slot)));
#pragma unroll
  for (int32_t step = 0; step < Tile::kHalves * 4; ++step) {
    const int32_t inside = step % 4 * 32;
    Tile::Products::template Scores<Tile::kKeys>::multiply(
        state.scores,
        query + ((step / 4 * Tile::kQueryHalfBytes + inside) >> 4),
        key + ((step / 4 * Tile::kTileHalfBytes + inside) >> 4), step > 0);
  }
  ptx::wgmma_commit();
}

template <typename Tile>
__device__ void Consumer<Tile>::multiply_values(Accumulators<Tile>& state,
                                                bool accumulate) {
  constexpr int32_t kPartBytes =
      Tile::kValueColumns / kHalfDims * Tile::kTileHalfBytes;
  const uint64_t value = value_descriptor(
      ptx::shared_address(buffers.value(values.slot)), Tile::kTileHalfBytes);
#pragma unroll
  for (int32_t step = 0; step < Tile::kKeyBlocks; ++step)
#pragma unroll
    for (int32_t part = 0; part < Tile::kValueParts; ++part)
      Tile::Products::template Output<Tile::kValueColumns>::multiply(
          state.output[part], state.weights[step],
          value + ((part * kPartBytes + step * kBlockHalfBytes) >> 4),
          accumulate || step > 0);
  ptx::wgmma_commit();
}

template <typename Tile>
__device__ void Consumer<Tile>::take_turn() {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + index),
               "n"(kNumConsumers * kWarpgroupThreads)
               : "memory");
}

template <typename Tile>
__device__ void Consumer<Tile>::pass_turn() {
  asm volatile("bar.arrive %0, %1;" ::"r"(1 + (index + 1) % kNumConsumers),
               "n"(kNumConsumers * kWarpgroupThreads)
               : "memory");
}

template <typename Tile>
__device__ void Consumer<Tile>::begin(const Item& item,
                                      Accumulators<Tile>& state) {
  wait_full(control.queries, queries);
  wait_full(control.keys, keys);
  ptx::hold(state.scores);
  ptx::wgmma_fence();
  multiply_keys(state);
  ptx::wgmma_wait<0>();
  ptx::hold(state.scores);
  release(control.keys, keys);
  int32_t positions[kThreadRows];
  row_positions<Tile>(item, parameters.group, index, positions);
  mask_future(state.scores, (item.num_key_tiles - 1) * Tile::kKeys, positions);
  update_softmax<true>(state.scores, state.rows, state.factor);
  pack_weights<typename Tile::Products>(state.scores, state.weights);
}

template <typename Tile>
template <bool masked>
__device__ void Consumer<Tile>::advance(const Item& item, int32_t tile,
                                        Accumulators<Tile>& state) {
  const bool accumulate = tile < item.num_key_tiles - 2;
  wait_full(control.keys, keys);
  take_turn();
  ptx::hold(state.scores);
  hold_all(state.output);
  ptx::wgmma_fence();
  multiply_keys(state);
  wait_full(control.values, values);
  multiply_values(state, accumulate);
  pass_turn();
  ptx::wgmma_wait<1>();
  ptx::hold(state.scores);
  release(control.keys, keys);
  if (masked) {
    int32_t positions[kThreadRows];
    row_positions<Tile>(item, parameters.group, index, positions);
    mask_future(state.scores, tile * Tile::kKeys, positions);
  }
  update_softmax<masked>(state.scores, state.rows, state.factor);
  ptx::wgmma_wait<0>();
  hold_all(state.output);
  release(control.values, values);
  pack_weights<typename Tile::Products>(state.scores, state.weights);
  rescale(state.output, state.rows.scale);
}

template <typename Tile>
__device__ void Consumer<Tile>::finish(Accumulators<Tile>& state,
                                       bool accumulate) {
  release(control.queries, queries);
  wait_full(control.values, values);
  hold_all(state.output);
  ptx::wgmma_fence();
  multiply_values(state, accumulate);
  ptx::wgmma_wait<0>();
  hold_all(state.output);
  release(control.values, values);
}

template <typename Tile>
__device__ void Consumer<Tile>::attend(const Item& item,
                                       Accumulators<Tile>& state) {
  begin(item, state);
  int32_t tile = item.num_key_tiles - 2;
  for (; tile >= item.num_open_tiles; --tile) advance<true>(item, tile, state);
  for (; tile >= 0; --tile) advance<false>(item, tile, state);
  finish(state, item.num_key_tiles > 1);
}

template <typename Tile>
__device__ inline void consume(const Parameters& parameters,
                               Control<Tile>& control,
                               const Buffers<Tile>& buffers, int32_t index) {
  Consumer<Tile> consumer{parameters, control, buffers, index};
  const int32_t thread = threadIdx.x % kWarpgroupThreads;
  const int32_t count = num_items(parameters, control.table);
  if (index > 0) consumer.pass_turn();
  for (int32_t turn = 0; item_index(turn) < count; ++turn) {
    const Item item =
        make_item<Tile>(parameters, control.table, item_index(turn));
    Accumulators<Tile> state;
    state.factor = exponent_factor<Tile>(parameters, item);
    consumer.attend(item, state);
    const int32_t row = item.first_row + index * kConsumerRows +
                        thread / kWarpThreads * 16 + thread % kWarpThreads / 4;
    store_row<Tile>(parameters, item, row, 0, state.rows.sum[0], state.output);
    store_row<Tile>(parameters, item, row + 8, 1, state.rows.sum[1],
                    state.output);
  }
}

}
