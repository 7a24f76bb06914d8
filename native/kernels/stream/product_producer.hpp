#pragma once

#include <cuda.h>

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/products/ring_cursor.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/kernels/stream/product_stage.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/tensor_copy.hpp"

namespace glm::kernels::stream {

struct PushCursor {
  int32_t unit;
  int32_t tile;
  const uint8_t* source;
  products::RingCursor ring;
};

template <int32_t num_tokens, int32_t num_threads>
__device__ inline void copy_token_tile(const TokenRows& tokens,
                                       int32_t first_token, int32_t first_byte,
                                       uint8_t* target, int32_t thread) {
#pragma unroll 1
  for (int32_t item = thread; item < num_tokens * kTileRowBytes;
       item += num_threads) {
    int32_t row = item / kTileRowBytes;
    int32_t token = first_token + row;
    int32_t within = item % kTileRowBytes;
    int32_t byte = first_byte + within;
    bool is_present = token < tokens.num_rows && byte < tokens.row_bytes;
    target[swizzle(row, within)] =
        is_present ? tokens.data[int64_t{token} * tokens.row_bytes + byte] : 0;
  }
}

template <typename Layout>
class ProductProducer {
 public:
  __device__ ProductProducer(const ProductArgs& args, const ProductShape& shape,
                             const ProductShared& shared,
                             const ProductPosition& position, int32_t thread)
      : args_(args),
        shape_(shape),
        shared_(shared),
        position_(position),
        thread_(thread),
        stages_(ptx::shared_address(shared.data)),
        empty_(ptx::shared_address(shared.barriers->empty)) {}

  __device__ void begin_weights() const {
    begin_stages(0, shape_.num_in_flight);
  }

  __device__ void produce(const CUtensorMap* map) const {
    int32_t begun = pace_weights();
    ptx::wait_for_predecessor();
    if (!shape_.has_token_map) {
      begin_stages(begun, shape_.num_stages);
      return copy_all_tokens();
    }
    begin_tokens(map);
    begin_stages(begun, shape_.num_stages);
    if (!is_elected()) return;
    PushCursor cursor = push_at(shape_.num_stages);
#pragma unroll 1
    for (; !is_past(cursor); step(cursor)) {
      await_empty(cursor);
      push_weights(cursor);
      push_tokens(cursor, map);
    }
  }

 private:
  __device__ bool is_elected() const { return thread_ == 0; }

  __device__ const uint8_t* source_of(int32_t unit) const {
    int32_t half = unit * Layout::kUnitGroups;
    int64_t tile =
        int64_t{half / 2} * args_.num_column_tiles + position_.first_tile;
    return args_.tiles + tile * kTileBytes + half % 2 * kWarpgroupBytes;
  }

  __device__ void begin_stages(int32_t first, int32_t end) const {
    if (thread_ < first || thread_ >= end) return;
    PushCursor cursor = push_at(thread_);
    if (!is_past(cursor)) push_weights(cursor);
  }

  __device__ int32_t pace_weights() const {
    ProductBarriers& barriers = *shared_.barriers;
    int32_t begun = shape_.num_in_flight;
    if (is_elected()) {
      PushCursor cursor = push_at(begun);
      while (begun < shape_.num_stages && !is_past(cursor) &&
             !ptx::barrier_test(&barriers.predecessor_ended, 0)) {
        int32_t oldest = begun - shape_.num_in_flight;
        if (!ptx::barrier_test(&barriers.weights[oldest], 0)) continue;
        push_weights(cursor);
        step(cursor);
        ++begun;
      }
    }
    return __shfl_sync(~0u, begun, 0);
  }

  __device__ PushCursor push_at(int32_t index) const {
    bool is_first = index < position_.num_tiles;
    int32_t round = is_first ? 0 : index / position_.num_tiles;
    int32_t tile = index - round * position_.num_tiles;
    int32_t unit = position_.first_unit + round * position_.unit_step;
    bool is_second = index >= shape_.num_stages;
    products::RingCursor ring{is_second ? 0 : index, is_second ? 1u : 0u};
    return {unit, tile, source_of(unit) + int64_t{tile} * kTileBytes, ring};
  }

  __device__ void begin_tokens(const CUtensorMap* map) const {
    if (thread_ >= shape_.num_stages) return;
    PushCursor cursor = push_at(thread_);
    if (!is_past(cursor)) push_tokens(cursor, map);
  }

  __device__ void copy_all_tokens() const {
    PushCursor cursor = push_at(0);
#pragma unroll 1
    for (int32_t i = 0; !is_past(cursor); ++i) {
      if (i >= shape_.num_stages) {
        await_empty(cursor);
        if (is_elected()) push_weights(cursor);
      }
      copy_tokens(cursor);
      step(cursor);
    }
  }

  __device__ void await_empty(const PushCursor& cursor) const {
    ptx::barrier_wait(empty_ + cursor.ring.stage * kBarrierBytes,
                      cursor.ring.parity ^ 1);
  }

  __device__ bool is_past(const PushCursor& cursor) const {
    return cursor.unit >= shape_.end_unit;
  }

  __device__ void step(PushCursor& cursor) const {
    cursor.ring.advance(shape_.num_stages);
    cursor.source += kTileBytes;
    if (++cursor.tile < position_.num_tiles) return;
    cursor.tile = 0;
    cursor.unit += position_.unit_step;
    cursor.source = source_of(cursor.unit);
  }

  __device__ void push_weights(const PushCursor& cursor) const {
    uint32_t full =
        ptx::shared_address(&shared_.barriers->weights[cursor.ring.stage]);
    ptx::barrier_expect(full, Layout::kUnitBytes);
    ptx::bulk_copy(stages_ + cursor.ring.stage * Layout::kUnitBytes,
                   cursor.source, Layout::kUnitBytes, full, ptx::kEvictFirst);
  }

  __device__ int32_t first_byte(const PushCursor& cursor) const {
    return (position_.first_tile + cursor.tile) * kTileRowBytes;
  }

  __device__ uint8_t* token_stage(const PushCursor& cursor) const {
    return shared_.tokens + cursor.ring.stage * Layout::kTokenBytes;
  }

  __device__ void push_tokens(const PushCursor& cursor,
                              const CUtensorMap* map) const {
    uint64_t* full = &shared_.barriers->tokens[cursor.ring.stage];
    ptx::barrier_expect(full, Layout::kTokenBytes);
    ptx::tensor_copy(token_stage(cursor), map, first_byte(cursor),
                     position_.first_token, full);
  }

  __device__ void copy_tokens(const PushCursor& cursor) const {
    copy_token_tile<Layout::kTokens, Layout::kProducerThreads>(
        args_.tokens, position_.first_token, first_byte(cursor),
        token_stage(cursor), thread_);
    ptx::proxy_fence();
    ptx::barrier_arrive(&shared_.barriers->tokens[cursor.ring.stage]);
  }

  const ProductArgs& args_;
  const ProductShape& shape_;
  ProductShared shared_;
  const ProductPosition& position_;
  int32_t thread_;
  uint32_t stages_;
  uint32_t empty_;
};

}
