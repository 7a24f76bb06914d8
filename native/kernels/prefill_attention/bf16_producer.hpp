#pragma once

#include "native/kernels/prefill_attention/page_blocks.hpp"
#include "native/kernels/prefill_attention/query_loader.hpp"
#include "native/ptx/bulk_copy.hpp"

namespace glm::kernels::prefill_attention_detail {

template <typename Tile>
struct Lane {
  int32_t index;
  int32_t block;
  int32_t half;
  bool copies;
  __device__ Lane()
      : index(threadIdx.x % kWarpThreads),
        block(index / Tile::kHalves),
        half(index % Tile::kHalves),
        copies(index < Tile::kNumCopies) {}
  __device__ int32_t destination() const {
    return half * Tile::kTileHalfBytes + block * kBlockHalfBytes;
  }
};

template <typename Tile, Side side>
__device__ inline const uint8_t* source_of(const Parameters& parameters,
                                           const Item& item,
                                           const Lane<Tile>& lane,
                                           const Copy& copy) {
  const glm_kv_cache& cache = parameters.cache;
  const int32_t half = lane.half + (side == Side::kValues ? Tile::kHalves : 0);
  return static_cast<const uint8_t*>(cache.data) +
         page_offset(cache, parameters.layer, item.kv_head, copy.page) +
         copy.block * block_bytes(GLM_DTYPE_BF16, cache.head_dim) +
         half * kBlockHalfBytes;
}

__device__ inline void store_partial_block(const uint8_t* source,
                                           int32_t num_tokens,
                                           uint8_t* destination) {
  for (int32_t chunk = 0; chunk < kBlockHalfBytes / kChunkBytes; ++chunk) {
    uint4 content = {0, 0, 0, 0};
    if (chunk / kHalfChunks < num_tokens)
      content = reinterpret_cast<const uint4*>(source)[chunk];
    reinterpret_cast<uint4*>(destination)[chunk] = content;
  }
  ptx::proxy_fence();
}

template <typename Tile>
__device__ inline void issue_copies(const Lane<Tile>& lane,
                                    const uint8_t* source, bool copies,
                                    uint8_t* destination, uint64_t* barrier) {
  const uint32_t lanes = __ballot_sync(0xFFFFFFFFu, copies);
  if (lane.index == 0)
    ptx::barrier_expect(barrier, __popc(lanes) * kBlockHalfBytes);
  __syncwarp();
  if (copies) ptx::bulk_copy(destination, source, kBlockHalfBytes, barrier);
}

template <typename Tile, Side side>
__device__ inline void fill_tile(const Parameters& parameters, const Item& item,
                                 const Lane<Tile>& lane, const Copy& copy,
                                 uint8_t* tile, uint64_t* barrier) {
  const uint8_t* source = source_of<Tile, side>(parameters, item, lane, copy);
  uint8_t* destination = tile + lane.destination();
  bool copies = copy.num_tokens > 0;
  if (side == Side::kValues) {
    copies = copy.num_tokens == kBlockTokens;
    if (lane.copies && !copies)
      store_partial_block(source, copy.num_tokens, destination);
    __syncwarp();
  }
  issue_copies(lane, source, copies, destination, barrier);
}

template <typename Tile, Side side>
__device__ inline void stream_tiles(const Parameters& parameters,
                                    Control<Tile>& control,
                                    const Buffers<Tile>& buffers) {
  Ring<Tile::kStages>& ring =
      side == Side::kKeys ? control.keys : control.values;
  Cursor<Tile::kStages> cursor;
  const Lane<Tile> lane;
  const int32_t count = num_items(parameters, control.table);
  for (int32_t turn = 0; item_index(turn) < count; ++turn) {
    const Item item =
        make_item<Tile>(parameters, control.table, item_index(turn));
    Copy next = look_up<Tile>(parameters, item, item.num_key_tiles - 1,
                              lane.block, lane.copies);
    for (int32_t tile = item.num_key_tiles - 1; tile >= 0; --tile) {
      const Copy copy = next;
      next = look_up<Tile>(parameters, item, tile - 1, lane.block, lane.copies);
      wait_empty(ring, cursor);
      fill_tile<Tile, side>(parameters, item, lane, copy,
                            side == Side::kKeys ? buffers.key(cursor.slot)
                                                : buffers.value(cursor.slot),
                            &ring.full[cursor.slot]);
      cursor.advance();
    }
  }
}

struct Bf16Producer {
  template <typename Tile>
  __device__ static void produce(const Parameters& parameters,
                                 Control<Tile>& control,
                                 const Buffers<Tile>& buffers) {
    const int32_t thread = threadIdx.x % kWarpgroupThreads;
    if (thread < kWarpThreads)
      stream_tiles<Tile, Side::kKeys>(parameters, control, buffers);
    else if (thread < 2 * kWarpThreads)
      stream_tiles<Tile, Side::kValues>(parameters, control, buffers);
    else
      load_queries(parameters, control, buffers, thread - 2 * kWarpThreads);
  }
};

}
