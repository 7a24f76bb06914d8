#ifndef GLM_KERNELS_PREFILL_ATTENTION_PRODUCER_HPP
#define GLM_KERNELS_PREFILL_ATTENTION_PRODUCER_HPP

#include "native/kernels/prefill_attention/shared_memory.hpp"
#include "native/ptx/bulk_copy.hpp"

namespace glm::kernels::prefill_attention_detail {

template <typename Tile>
struct BlockSource {
  const uint8_t* key;
  const uint8_t* value;
  int32_t destination;
  int32_t num_tokens;
};

template <typename Tile>
__device__ inline BlockSource<Tile> locate_block(const Parameters& parameters,
                                                 const Item& item,
                                                 int32_t key_tile) {
  const glm_kv_cache& cache = parameters.cache;
  const int32_t lane = threadIdx.x % kWarpThreads;
  const int32_t block = lane / Tile::kHalves;
  const int32_t half = lane - block * Tile::kHalves;
  const int32_t index = key_tile * Tile::kKeyBlocks + block;
  BlockSource<Tile> source = {nullptr, nullptr, 0, 0};
  source.destination = half * Tile::kTileHalfBytes + block * kBlockHalfBytes;
  const int32_t remaining = item.context_length - index * kBlockTokens;
  if (lane >= Tile::kNumCopies || remaining <= 0) return source;
  const int32_t page_blocks = cache.page_size / kBlockTokens;
  const int32_t* pages =
      parameters.segments.page_table +
      int64_t{item.table_row} * parameters.segments.page_table_stride;
  const int32_t entry = index / page_blocks;
  source.num_tokens = min(remaining, kBlockTokens);
  source.key =
      static_cast<const uint8_t*>(cache.data) +
      page_offset(cache, parameters.layer, item.kv_head, pages[entry]) +
      (index - entry * page_blocks) *
          block_bytes(GLM_DTYPE_BF16, cache.head_dim) +
      half * kBlockHalfBytes;
  source.value = source.key + Tile::kHalves * kBlockHalfBytes;
  return source;
}

__device__ inline void expect_copies(uint64_t* barrier, bool copies) {
  const uint32_t lanes = __ballot_sync(0xFFFFFFFFu, copies);
  if (threadIdx.x % kWarpThreads == 0)
    ptx::barrier_expect(barrier, __popc(lanes) * kBlockHalfBytes);
  __syncwarp();
}

template <typename Tile>
__device__ inline void copy_keys(const BlockSource<Tile>& source,
                                 Ring<Tile::kStages>& ring,
                                 Cursor<Tile::kStages>& cursor, uint8_t* tile) {
  wait_empty(ring, cursor);
  const bool copies = source.num_tokens > 0;
  expect_copies(&ring.full[cursor.slot], copies);
  if (copies)
    ptx::bulk_copy(tile + source.destination, source.key, kBlockHalfBytes,
                   &ring.full[cursor.slot]);
  cursor.advance();
}

template <typename Tile>
__device__ inline void store_partial_block(const BlockSource<Tile>& source,
                                           uint8_t* tile) {
  for (int32_t chunk = 0; chunk < kBlockHalfBytes / kChunkBytes; ++chunk) {
    const int32_t token = chunk / kHalfChunks;
    uint4 content = {0, 0, 0, 0};
    if (token < source.num_tokens)
      content = reinterpret_cast<const uint4*>(source.value)[chunk];
    reinterpret_cast<uint4*>(tile + source.destination)[chunk] = content;
  }
  ptx::proxy_fence();
}

template <typename Tile>
__device__ inline void copy_values(const BlockSource<Tile>& source,
                                   Ring<Tile::kStages>& ring,
                                   Cursor<Tile::kStages>& cursor,
                                   uint8_t* tile) {
  wait_empty(ring, cursor);
  const bool copies = source.num_tokens == kBlockTokens;
  const bool owner = threadIdx.x % kWarpThreads < Tile::kNumCopies;
  if (owner && !copies) store_partial_block(source, tile);
  __syncwarp();
  expect_copies(&ring.full[cursor.slot], copies);
  if (copies)
    ptx::bulk_copy(tile + source.destination, source.value, kBlockHalfBytes,
                   &ring.full[cursor.slot]);
  cursor.advance();
}

template <typename Tile>
__device__ inline void stream_keys_and_values(const Parameters& parameters,
                                              Control<Tile>& control,
                                              const Buffers<Tile>& buffers) {
  Cursor<Tile::kStages> keys;
  Cursor<Tile::kStages> values;
  const int32_t count = num_items(parameters, control.table);
  for (int32_t turn = 0; item_index(turn) < count; ++turn) {
    const Item item =
        make_item<Tile>(parameters, control.table, item_index(turn));
    BlockSource<Tile> source =
        locate_block<Tile>(parameters, item, item.num_key_tiles - 1);
    copy_keys(source, control.keys, keys, buffers.key(keys.slot));
    for (int32_t tile = item.num_key_tiles - 2; tile >= 0; --tile) {
      const BlockSource<Tile> next = locate_block<Tile>(parameters, item, tile);
      copy_keys(next, control.keys, keys, buffers.key(keys.slot));
      copy_values(source, control.values, values, buffers.value(values.slot));
      source = next;
    }
    copy_values(source, control.values, values, buffers.value(values.slot));
  }
}

}

#endif
