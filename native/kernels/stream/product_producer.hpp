#ifndef GLM_KERNELS_STREAM_PRODUCT_PRODUCER_HPP
#define GLM_KERNELS_STREAM_PRODUCT_PRODUCER_HPP

#include <cuda.h>

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/product_stage.hpp"
#include "native/kernels/stream/token_tile.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/tensor_copy.hpp"

namespace glm::kernels::stream {

struct PushCursor {
  int32_t unit;
  int32_t tile;
  const uint8_t* source;
  RingCursor ring;
};

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
        full_(ptx::shared_address(shared.barriers->ring.full)),
        empty_(ptx::shared_address(shared.barriers->ring.empty)) {}

  __device__ void begin_weights() const {
    PushCursor cursor = first_push();
    for (int32_t i = 0; i < shape_.num_stages; ++i) {
      if (is_past(cursor)) return;
      push_weights(cursor);
      step(cursor);
    }
  }

  __device__ void produce(const CUtensorMap* map) const {
    PushCursor cursor = first_push();
#pragma unroll 1
    for (int32_t i = 0; !is_past(cursor); ++i) {
      if (i >= shape_.num_stages) refill(cursor);
      if (shape_.has_token_map) {
        push_tokens(cursor, map);
      } else {
        copy_tokens(cursor);
      }
      step(cursor);
    }
  }

  __device__ bool is_elected() const { return thread_ == 0; }

 private:
  __device__ bool is_past(const PushCursor& cursor) const {
    return cursor.unit >= shape_.num_units;
  }

  __device__ const uint8_t* unit_source(int32_t unit) const {
    int32_t half = unit * Layout::kUnitGroups;
    int64_t tile =
        int64_t{half / 2} * args_.num_column_tiles + position_.first_tile;
    return args_.tiles + tile * kTileBytes + half % 2 * kWarpgroupBytes;
  }

  __device__ PushCursor first_push() const {
    return {position_.first_unit, 0, unit_source(position_.first_unit), {}};
  }

  __device__ void step(PushCursor& cursor) const {
    cursor.ring.advance(shape_.num_stages);
    cursor.source += kTileBytes;
    if (++cursor.tile < position_.num_tiles) return;
    cursor.tile = 0;
    cursor.unit += position_.unit_step;
    cursor.source = unit_source(cursor.unit);
  }

  __device__ void refill(const PushCursor& cursor) const {
    ptx::barrier_wait(empty_ + cursor.ring.stage * kBarrierBytes,
                      cursor.ring.parity ^ 1);
    if (is_elected()) push_weights(cursor);
  }

  __device__ void push_weights(const PushCursor& cursor) const {
    uint32_t full = full_ + cursor.ring.stage * kBarrierBytes;
    ptx::barrier_expect(full, shape_.has_token_map ? Layout::kStageBytes
                                                   : Layout::kWeightBytes);
    ptx::bulk_copy(stages_ + cursor.ring.stage * Layout::kStageBytes,
                   cursor.source, Layout::kWeightBytes, full, ptx::kEvictFirst);
  }

  __device__ int32_t first_byte(const PushCursor& cursor) const {
    return (position_.first_tile + cursor.tile) * kTileRowBytes;
  }

  __device__ uint8_t* token_stage(const PushCursor& cursor) const {
    return shared_.data + cursor.ring.stage * Layout::kStageBytes +
           Layout::kWeightBytes;
  }

  __device__ void push_tokens(const PushCursor& cursor,
                              const CUtensorMap* map) const {
    if (!is_elected()) return;
    ptx::tensor_copy(token_stage(cursor), map, first_byte(cursor), 0,
                     &shared_.barriers->ring.full[cursor.ring.stage]);
  }

  __device__ void copy_tokens(const PushCursor& cursor) const {
    copy_token_tile<Layout::kTokens, Layout::kProducerThreads>(
        args_.tokens, first_byte(cursor), token_stage(cursor), thread_);
    ptx::proxy_fence();
    ptx::barrier_arrive(full_ + cursor.ring.stage * kBarrierBytes);
  }

  const ProductArgs& args_;
  const ProductShape& shape_;
  ProductShared shared_;
  const ProductPosition& position_;
  int32_t thread_;
  uint32_t stages_;
  uint32_t full_;
  uint32_t empty_;
};

}

#endif
