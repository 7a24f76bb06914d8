#ifndef GLM_KERNELS_STREAM_TOKEN_BLOCK_HPP
#define GLM_KERNELS_STREAM_TOKEN_BLOCK_HPP

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/product_args.hpp"

namespace glm::kernels::stream {

__device__ inline uint4 gather_bytes(const uint8_t* source, int32_t count) {
  uint32_t words[4] = {0, 0, 0, 0};
  for (int32_t i = 0; i < count; ++i) {
    words[i / 4] |= static_cast<uint32_t>(source[i]) << (i % 4 * 8);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ inline uint4 token_chunk(const TokenRows& tokens, bool is_aligned,
                                    int32_t row, int32_t byte) {
  int32_t count = tokens.row_bytes - byte;
  if (row >= tokens.num_rows || count <= 0) return make_uint4(0, 0, 0, 0);
  int64_t index = tokens.row_index ? tokens.row_index[row] : row;
  const uint8_t* source = tokens.data + index * tokens.row_bytes + byte;
  if (is_aligned) return *reinterpret_cast<const uint4*>(source);
  return gather_bytes(source, count < kChunkBytes ? count : kChunkBytes);
}

__device__ inline bool has_aligned_rows(const TokenRows& tokens) {
  return tokens.row_bytes % kChunkBytes == 0 &&
         reinterpret_cast<uint64_t>(tokens.data) % kChunkBytes == 0;
}

template <int32_t columns>
__device__ inline void load_token_block(uint8_t* block, const TokenRows& tokens,
                                        int32_t first_tile, int32_t num_tiles,
                                        int32_t thread, int32_t num_threads) {
  constexpr int32_t kRowChunks = kTileRowBytes / kChunkBytes;
  constexpr int32_t kInFlight = 8;
  bool is_aligned = has_aligned_rows(tokens);
  int32_t row_chunks = num_tiles * kRowChunks;
  int32_t count = columns * row_chunks;
  for (int32_t base = thread; base < count; base += num_threads * kInFlight) {
    uint4 chunk[kInFlight];
#pragma unroll
    for (int32_t i = 0; i < kInFlight; ++i) {
      int32_t item = base + i * num_threads;
      int32_t byte =
          first_tile * kTileRowBytes + item % row_chunks * kChunkBytes;
      if (item < count) {
        chunk[i] = token_chunk(tokens, is_aligned, item / row_chunks, byte);
      }
    }
#pragma unroll
    for (int32_t i = 0; i < kInFlight; ++i) {
      int32_t item = base + i * num_threads;
      if (item >= count) continue;
      int32_t within = item % row_chunks;
      uint8_t* tile = block + within / kRowChunks * (columns * kTileRowBytes);
      int32_t offset =
          swizzle(item / row_chunks, within % kRowChunks * kChunkBytes);
      *reinterpret_cast<uint4*>(tile + offset) = chunk[i];
    }
  }
}

}

#endif
