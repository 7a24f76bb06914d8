#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/route/parameters.hpp"

namespace glm::kernels::routing {

struct Slice {
  int32_t begin;
  int32_t end;
  int32_t first_token;
  int32_t part;
  int32_t share;
  int32_t first_row;

  __device__ int32_t count() const { return end - begin; }
};

struct ChunkPlace {
  int32_t token;
  int32_t element;
  int32_t offset;
};

__device__ inline uint4 gathered_chunk(const RouteParameters& p,
                                       const ChunkPlace& place) {
  const uint16_t* elements = reinterpret_cast<const uint16_t*>(p.input) +
                             int64_t{place.token} * p.hidden_size +
                             place.element;
  uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int32_t i = 0; i < kChunkElements; ++i)
    if (place.element + i < p.hidden_size)
      words[i / 2] |= static_cast<uint32_t>(__ldcg(elements + i))
                      << (i % 2 * 16);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ inline uint4 whole_chunk(const RouteParameters& p,
                                    const ChunkPlace& place) {
  return __ldcg(reinterpret_cast<const uint4*>(
      p.input + int64_t{place.token} * p.hidden_size + place.element));
}

__device__ inline bool has_whole_chunks(const RouteParameters& p) {
  return p.hidden_size % kChunkElements == 0 &&
         reinterpret_cast<uint64_t>(p.input) % kChunkBytes == 0;
}

template <int32_t token_blocks>
__device__ inline ChunkPlace chunk_place(const Slice& slice,
                                         int32_t tile_elements, int32_t item) {
  constexpr int32_t kRows = token_blocks * kFragmentTokens;
  constexpr int32_t kRowChunks = kTileRowBytes / kChunkBytes;
  int32_t chunk = item % kRowChunks;
  int32_t row = item / kRowChunks % kRows;
  int32_t tile = item / (kRowChunks * kRows);
  return {slice.first_token + row,
          slice.begin * tile_elements + tile * kTokenTileElements +
              chunk * kChunkElements,
          tile * (kRows * kTileRowBytes) + swizzle(row, chunk * kChunkBytes)};
}

template <int32_t token_blocks, bool is_whole>
__device__ inline void load_chunks(const RouteParameters& p, const Slice& slice,
                                   const SharedPlan& plan,
                                   int32_t tile_elements, uint8_t* tokens) {
  constexpr int32_t kAtOnce = 4;
  constexpr int32_t kTileChunks =
      token_blocks * kFragmentTokens * kTileRowBytes / kChunkBytes;
  int32_t num_threads = plan.own_fragments * kWarpThreads;
  int32_t count = plan.num_token_tiles * kTileChunks;
  for (int32_t base = threadIdx.x; base < count;
       base += kAtOnce * num_threads) {
    uint4 chunk[kAtOnce] = {};
    ChunkPlace place[kAtOnce];
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      int32_t item = base + i * num_threads;
      place[i] = chunk_place<token_blocks>(slice, tile_elements, item);
      if (item < count && place[i].token < p.num_tokens &&
          place[i].element < p.hidden_size)
        chunk[i] =
            is_whole ? whole_chunk(p, place[i]) : gathered_chunk(p, place[i]);
    }
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i)
      if (base + i * num_threads < count)
        *reinterpret_cast<uint4*>(tokens + place[i].offset) = chunk[i];
  }
}

template <int32_t token_blocks>
__device__ inline void load_tokens(const RouteParameters& p, const Slice& slice,
                                   const SharedPlan& plan,
                                   int32_t tile_elements, uint8_t* tokens) {
  if (has_whole_chunks(p))
    load_chunks<token_blocks, true>(p, slice, plan, tile_elements, tokens);
  else
    load_chunks<token_blocks, false>(p, slice, plan, tile_elements, tokens);
}

}
