#pragma once

#include "native/kernels/prefill_attention/code_stream.hpp"
#include "native/kernels/prefill_attention/f8_tile.hpp"
#include "native/kernels/prefill_attention/query_loader.hpp"

namespace glm::kernels::prefill_attention_detail {

template <typename Tile>
__device__ inline void round_queries(uint8_t* tile) {
#pragma unroll 1
  for (int32_t i = hidden_thread(); i < Tile::kQueryChunks;
       i += Tile::kQueryThreads) {
    uint4* chunk = reinterpret_cast<uint4*>(query_chunk<Tile>(
        tile, i / Tile::kQueryRowChunks, i % Tile::kQueryRowChunks));
    const uint4 pairs = *chunk;
    *chunk = {ptx::halves_of_bf16(pairs.x), ptx::halves_of_bf16(pairs.y),
              ptx::halves_of_bf16(pairs.z), ptx::halves_of_bf16(pairs.w)};
  }
}

template <typename Tile>
struct Widener {
  const Parameters& parameters;
  Control<Tile>& control;
  const Buffers<Tile>& buffers;
  const Staging<Tile>& staging;
  CodeStream<Tile> stream;
  LanePlaces places;
  Cursor<Tile::kStagedBlocks> staged;
  Cursor<Tile::kStages> tiles;
  int32_t turn = 0;

  __device__ Widener(const Parameters& given, Control<Tile>& shared,
                     const Buffers<Tile>& memory, const Staging<Tile>& ring)
      : parameters(given),
        control(shared),
        buffers(memory),
        staging(ring),
        stream(given, shared.table, ring) {}

  __device__ void hand_over(Ring<Tile::kStages>& ring) {
    ptx::proxy_fence();
    __syncwarp();
    if (threadIdx.x % kWarpThreads == 0)
      ptx::barrier_arrive(&ring.full[tiles.slot]);
  }

  __device__ LaneCodes take_codes(int32_t next_step) {
    ptx::barrier_wait(&staging.full[staged.slot], staged.parity);
    const LaneCodes codes = read_codes(staging.block(staged.slot), places);
    ptx::proxy_fence();
    __syncwarp();
    stream.request(staged.slot, next_step);
    staged.advance();
    return codes;
  }

  __device__ void widen_next(const Item& item, int32_t tile, int32_t step) {
    const bool keys = step < kWarpTileCopies;
    auto& ring = keys ? control.keys : control.values;
    uint8_t* destination =
        keys ? buffers.key(tiles.slot) : buffers.value(tiles.slot);
    const CodeBlock<Tile> block(step % kWarpTileCopies);
    const int32_t first =
        (tile * Tile::kKeyBlocks + block.tile_block) * kBlockTokens;
    const int32_t num_tokens = item.context_length - first;
    const int32_t next_step = (step + Tile::kStagedBlocks) % kWarpTileBlocks;
    LaneCodes codes = take_codes(next_step);
    if (num_tokens < kBlockTokens) clear_past(codes, num_tokens);
    if (step % kWarpTileCopies == 0) wait_empty(ring, tiles);
    store_f16<Tile>(codes, places, block.code_half,
                    destination + block.tile_block * kBlockHalfBytes);
    if (step % kWarpTileCopies == kWarpTileCopies - 1) hand_over(ring);
    stream.advance(next_step);
  }

  __device__ Cursor<Tile::kQueryBuffers> queries() const {
    return {turn % Tile::kQueryBuffers,
            static_cast<uint32_t>(turn / Tile::kQueryBuffers % 2)};
  }

  __device__ void begin_queries(const Item& item) {
    wait_empty(control.queries, queries());
    copy_query_tile<Tile>(parameters, item, hidden_thread(),
                          buffers.query(queries().slot));
  }

  __device__ void finish_queries() {
    ptx::wait_for_copies();
    round_queries<Tile>(buffers.query(queries().slot));
    ptx::proxy_fence();
    ptx::barrier_arrive(&control.queries.full[queries().slot]);
  }

  __device__ void serve(const Item& item) {
    begin_queries(item);
    places = LanePlaces();
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
    for (; item_index(widener.turn) < num_items(parameters, control.table);
         ++widener.turn)
      widener.serve(
          make_item<Tile>(parameters, control.table, item_index(widener.turn)));
  }
};

}
