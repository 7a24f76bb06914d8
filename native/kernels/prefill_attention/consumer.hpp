#ifndef GLM_KERNELS_PREFILL_ATTENTION_CONSUMER_HPP
#define GLM_KERNELS_PREFILL_ATTENTION_CONSUMER_HPP

#include "native/kernels/prefill_attention/store.hpp"

namespace glm::kernels::prefill_attention_detail {

template <typename Tile>
struct Accumulators {
  float scores[Tile::kKeys / 2];
  uint32_t weights[Tile::kKeys / 16][4];
  float part[Tile::kValueColumns / 2];
  float output[Tile::kValueParts][Tile::kValueColumns / 2] = {};
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
  __device__ void multiply_values(const Accumulators<Tile>& state, int32_t part,
                                  float (&sums)[Tile::kValueColumns / 2]);
  __device__ void weigh(const Item& item, int32_t tile, bool masked,
                        Accumulators<Tile>& state, float (&tops)[kThreadRows],
                        float (&totals)[kThreadRows]);
  __device__ void begin(const Item& item, Accumulators<Tile>& state);
  template <bool masked>
  __device__ void advance(const Item& item, int32_t tile,
                          Accumulators<Tile>& state);
  __device__ void finish(Accumulators<Tile>& state);
  __device__ void attend(const Item& item, Accumulators<Tile>& state);
  __device__ void take_turn();
  __device__ void pass_turn();
};

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
__device__ void Consumer<Tile>::multiply_values(
    const Accumulators<Tile>& state, int32_t part,
    float (&sums)[Tile::kValueColumns / 2]) {
  const uint64_t value =
      value_descriptor(ptx::shared_address(buffers.value(values.slot)) +
                           part * Tile::kTileHalfBytes,
                       Tile::kTileHalfBytes);
  ptx::hold(sums);
  ptx::wgmma_fence();
#pragma unroll
  for (int32_t step = 0; step < Tile::kKeyBlocks; ++step)
    Tile::Products::template Output<Tile::kValueColumns>::multiply(
        sums, state.weights[step], value + (step * kBlockHalfBytes >> 4),
        step > 0);
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
__device__ void Consumer<Tile>::weigh(const Item& item, int32_t tile,
                                      bool masked, Accumulators<Tile>& state,
                                      float (&tops)[kThreadRows],
                                      float (&totals)[kThreadRows]) {
  if (masked) {
    int32_t positions[kThreadRows];
    row_positions<Tile>(item, parameters.group, index, positions);
    mask_future(state.scores, tile * Tile::kKeys, positions);
  }
#pragma unroll
  for (int32_t row = 0; row < kThreadRows; ++row)
    tops[row] = row_maximum(state.scores, row);
  weigh_tile<Tile::kParts>(state.scores, tops, state.factor, totals);
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
  float tops[kThreadRows];
  float totals[kThreadRows];
  weigh(item, 0, item.num_open_tiles == 0, state, tops, totals);
  state.rows.take(tops, state.factor);
  state.rows.add(totals);
  pack_weights<typename Tile::Products>(state.scores, state.weights);
}

template <typename Tile>
template <bool masked>
__device__ void Consumer<Tile>::advance(const Item& item, int32_t tile,
                                        Accumulators<Tile>& state) {
  constexpr int32_t kLast = Tile::kValueParts - 1;
  wait_full(control.values, values);
  wait_full(control.keys, keys);
  take_turn();
  multiply_values(state, 0, state.part);
  ptx::hold(state.scores);
  ptx::wgmma_fence();
  multiply_keys(state);
  pass_turn();
#pragma unroll
  for (int32_t part = 0; part < kLast; ++part) {
    if (part == 0)
      ptx::wgmma_wait<1>();
    else
      ptx::wgmma_wait<0>();
    ptx::hold(state.part);
    fold_part(state.part, state.rows.folds, state.output[part]);
    multiply_values(state, part + 1, state.part);
  }
  if (kLast > 0)
    ptx::wgmma_wait<1>();
  else
    ptx::wgmma_wait<0>();
  ptx::hold(state.scores);
  release(control.keys, keys);
  float tops[kThreadRows];
  float totals[kThreadRows];
  weigh(item, tile, masked, state, tops, totals);
  ptx::wgmma_wait<0>();
  ptx::hold(state.part);
  release(control.values, values);
  fold_part(state.part, state.rows.folds, state.output[kLast]);
  state.rows.take(tops, state.factor);
  state.rows.add(totals);
  pack_weights<typename Tile::Products>(state.scores, state.weights);
}

template <typename Tile>
__device__ void Consumer<Tile>::finish(Accumulators<Tile>& state) {
  release(control.queries, queries);
  wait_full(control.values, values);
  constexpr int32_t kAtOnce = Tile::kValueParts % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int32_t first = 0; first < Tile::kValueParts; first += kAtOnce) {
    float sums[kAtOnce][Tile::kValueColumns / 2];
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i)
      multiply_values(state, first + i, sums[i]);
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      ptx::hold(sums[i]);
      fold_part(sums[i], state.rows.folds, state.output[first + i]);
    }
  }
  release(control.values, values);
}

template <typename Tile>
__device__ void Consumer<Tile>::attend(const Item& item,
                                       Accumulators<Tile>& state) {
  begin(item, state);
  int32_t tile = 1;
  for (; tile < item.num_open_tiles; ++tile) advance<false>(item, tile, state);
  for (; tile < item.num_key_tiles; ++tile) advance<true>(item, tile, state);
  finish(state);
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
    store_row<Tile>(parameters, item, row, 0, state.rows.totals[0],
                    state.output);
    store_row<Tile>(parameters, item, row + 8, 1, state.rows.totals[1],
                    state.output);
  }
}

}

#endif
