#pragma once

#include "native/kernels/prefill_attention/page_blocks.hpp"
#include "native/ptx/bulk_copy.hpp"

namespace glm::kernels::prefill_attention_detail {

constexpr int32_t kWarpTileCopies = 2;
constexpr int32_t kWarpTileBlocks = 2 * kWarpTileCopies;
constexpr int32_t kTilesAtOnce = kWarpThreads / kWarpTileCopies;

template <typename Tile>
struct CodeBlock {
  int32_t tile_block;
  int32_t code_half;
  __device__ CodeBlock(int32_t copy) {
    const int32_t index =
        copy * Tile::kTileProducers +
        static_cast<int32_t>(threadIdx.x % kWarpgroupThreads / kWarpThreads);
    tile_block = index % Tile::kKeyBlocks;
    code_half = index / Tile::kKeyBlocks;
  }
};

template <typename Tile>
struct Staging {
  uint8_t* blocks;
  uint64_t* full;
  __device__ uint8_t* block(int32_t slot) const {
    return blocks + slot * kBlockHalfBytes;
  }
};

template <typename Tile>
__device__ inline void init_staging(const Staging<Tile>& staging) {
  if (threadIdx.x % kWarpThreads == 0) {
    for (int32_t i = 0; i < Tile::kStagedBlocks; ++i)
      ptx::barrier_init(&staging.full[i], 1);
    ptx::barrier_init_fence();
  }
  __syncwarp();
}

template <typename Tile>
struct CodeStream {
  const Parameters& parameters;
  const SegmentTable& table;
  const Staging<Tile>& staging;
  int32_t turn;
  int32_t tile;
  int32_t first_tile;
  const uint8_t* source;

  __device__ CodeStream(const Parameters& given, const SegmentTable& segments,
                        const Staging<Tile>& ring)
      : parameters(given), table(segments), staging(ring), turn(-1), tile(0) {
    begin_tile();
#pragma unroll 1
    for (int32_t slot = 0; slot < Tile::kStagedBlocks; ++slot) {
      request(slot, slot % kWarpTileBlocks);
      advance(slot % kWarpTileBlocks);
    }
  }

  __device__ void begin_tile() {
    const bool begins_item = --tile < 0;
    turn += begins_item;
    if (!begins_item && tile > first_tile - kTilesAtOnce) return;
    const int32_t index = item_index(turn);
    if (index >= num_items(parameters, table)) return;
    const Item item = make_item<Tile>(parameters, table, index);
    if (begins_item) tile = item.num_key_tiles - 1;
    find_sources(item);
  }

  __device__ void find_sources(const Item& item) {
    const glm_kv_cache& cache = parameters.cache;
    const int32_t lane = threadIdx.x % kWarpThreads;
    const CodeBlock<Tile> block(lane % kWarpTileCopies);
    const Copy copy =
        look_up<Tile>(parameters, item, tile - lane / kWarpTileCopies,
                      block.tile_block, true);
    first_tile = tile;
    source = static_cast<const uint8_t*>(cache.data) +
             page_offset(cache, parameters.layer, item.kv_head, copy.page) +
             copy.block * block_bytes(GLM_DTYPE_F8_E4M3, cache.head_dim) +
             block.code_half * kBlockHalfBytes;
  }

  __device__ void advance(int32_t step) {
    if (tile >= 0 && step == kWarpTileBlocks - 1) begin_tile();
  }

  __device__ void request(int32_t slot, int32_t step) const {
    if (tile < 0) return;
    const int32_t lane = threadIdx.x % kWarpThreads;
    if (lane ==
        (first_tile - tile) * kWarpTileCopies + step % kWarpTileCopies) {
      const int32_t half = step / kWarpTileCopies * Tile::kCodeHalves;
      ptx::barrier_expect(&staging.full[slot], kBlockHalfBytes);
      ptx::bulk_copy(staging.block(slot), source + half * kBlockHalfBytes,
                     kBlockHalfBytes, &staging.full[slot]);
    }
  }
};

}
