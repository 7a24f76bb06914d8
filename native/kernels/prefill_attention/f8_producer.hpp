#ifndef GLM_KERNELS_PREFILL_ATTENTION_F8_PRODUCER_HPP
#define GLM_KERNELS_PREFILL_ATTENTION_F8_PRODUCER_HPP

#include "native/kernels/prefill_attention/code_stream.hpp"
#include "native/kernels/prefill_attention/f8_tile.hpp"
#include "native/kernels/prefill_attention/query_loader.hpp"

namespace glm::kernels::prefill_attention_detail {

template <typename Tile>
struct Widener {
  const Parameters& parameters;
  Control<Tile>& control;
  const Buffers<Tile>& buffers;
  const Staging<Tile>& staging;
  CodeStream<Tile> codes;
  Cursor<Tile::kStagedBlocks> staged;
  Cursor<Tile::kStages> tiles;
  Cursor<Tile::kQueryBuffers> queries;

  __device__ Widener(const Parameters& given, Control<Tile>& shared,
                     const Buffers<Tile>& memory, const Staging<Tile>& ring)
      : parameters(given),
        control(shared),
        buffers(memory),
        staging(ring),
        codes(given, shared.table, ring) {}

  __device__ void hand_over(Ring<Tile::kStages>& ring) {
    ptx::proxy_fence();
    __syncwarp();
    if (threadIdx.x % kWarpThreads == 0)
      ptx::barrier_arrive(&ring.full[tiles.slot]);
  }

  __device__ void widen_next(const Item& item, int32_t tile, int32_t step) {
    const bool keys = step < kWarpTileCopies;
    auto& ring = keys ? control.keys : control.values;
    uint8_t* destination =
        keys ? buffers.key(tiles.slot) : buffers.value(tiles.slot);
    const CodeBlock<Tile> block(step % kWarpTileCopies);
    const int32_t first =
        (tile * Tile::kKeyBlocks + block.tile_block) * kBlockTokens;
    if (step % kWarpTileCopies == 0) wait_empty(ring, tiles);
    ptx::barrier_wait(&staging.full[staged.slot], staged.parity);
    widen_block<Tile>(staging.block(staged.slot), block.code_half,
                      item.context_length - first,
                      destination + block.tile_block * kBlockHalfBytes);
    __syncwarp();
    codes.request(staged.slot);
    staged.advance();
    if (step % kWarpTileCopies == kWarpTileCopies - 1) hand_over(ring);
  }

  __device__ void begin_queries(const Item& item) {
    wait_empty(control.queries, queries);
    copy_query_tile<Tile>(parameters, item, threadIdx.x % kWarpgroupThreads,
                          buffers.query(queries.slot));
  }

  __device__ void finish_queries() {
    finish_query_tile();
    ptx::barrier_arrive(&control.queries.full[queries.slot]);
    queries.advance();
  }

  __device__ void serve(const Item& item) {
    begin_queries(item);
    for (int32_t tile = item.num_key_tiles - 1; tile >= 0; --tile) {
#pragma unroll 1
      for (int32_t step = 0; step < kWarpTileBlocks; ++step) {
        if (step == kWarpTileCopies && tile == item.num_key_tiles - 1)
          finish_queries();
        widen_next(item, tile, step);
      }
      tiles.advance();
    }
  }
};

struct F8Producer {
  template <typename Tile>
  __device__ static void produce(const Parameters& parameters,
                                 Control<Tile>& control,
                                 const Buffers<Tile>& buffers) {
    __shared__ uint64_t full[Tile::kTileProducers][Tile::kStagedBlocks];
    const int32_t warp = threadIdx.x % kWarpgroupThreads / kWarpThreads;
    const Staging<Tile> staging = {
        buffers.behind_tiles() + warp * Tile::kWarpStagingBytes, full[warp]};
    init_staging(staging);
    Widener<Tile> widener(parameters, control, buffers, staging);
    const int32_t count = num_items(parameters, control.table);
    for (int32_t turn = 0; item_index(turn) < count; ++turn)
      widener.serve(
          make_item<Tile>(parameters, control.table, item_index(turn)));
  }
};

}

#endif
