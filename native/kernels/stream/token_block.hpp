#ifndef GLM_KERNELS_STREAM_TOKEN_BLOCK_HPP
#define GLM_KERNELS_STREAM_TOKEN_BLOCK_HPP

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/ptx/async_copy.hpp"
#include "native/ptx/mbarrier.hpp"

namespace glm::kernels::stream {

constexpr int32_t kRowChunks = kTileRowBytes / kChunkBytes;

struct TokenBlock {
  uint32_t address;
  int32_t first_byte;
  int32_t num_tiles;
};

__device__ inline bool has_aligned_rows(const TokenRows& tokens) {
  return tokens.row_bytes % kChunkBytes == 0 &&
         reinterpret_cast<uint64_t>(tokens.data) % kChunkBytes == 0;
}

template <bool gathers>
__device__ inline const uint8_t* token_row(const TokenRows& tokens,
                                           int32_t row) {
  int64_t index = gathers ? tokens.row_index[row] : row;
  return tokens.data + index * tokens.row_bytes;
}

__device__ inline uint32_t block_chunk(const TokenBlock& block, int32_t line,
                                       int32_t chunk) {
  return block.address + line * kTileRowBytes +
         (chunk ^ (line % kRowChunks)) * kChunkBytes;
}

template <int32_t columns, bool gathers>
__device__ inline void load_chunks(const TokenRows& tokens,
                                   const TokenBlock& block, int32_t thread,
                                   int32_t num_threads) {
  int32_t chunk = thread % kRowChunks;
#pragma unroll 4
  for (int32_t line = thread / kRowChunks; line < block.num_tiles * columns;
       line += num_threads / kRowChunks) {
    int32_t tile = line / columns;
    int32_t row = line - tile * columns;
    int32_t byte =
        block.first_byte + tile * kTileRowBytes + chunk * kChunkBytes;
    bool is_present = row < tokens.num_rows && byte < tokens.row_bytes;
    const uint8_t* source = tokens.data;
    if (is_present) source = token_row<gathers>(tokens, row) + byte;
    ptx::async_copy(block_chunk(block, line, chunk), source,
                    is_present ? kChunkBytes : 0);
  }
}

__device__ inline void store_byte(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

template <int32_t columns, bool gathers>
__device__ __noinline__ void load_bytes(const TokenRows& tokens,
                                        const TokenBlock& block, int32_t thread,
                                        int32_t num_threads) {
  int32_t chunk = thread % kRowChunks;
  for (int32_t line = thread / kRowChunks; line < block.num_tiles * columns;
       line += num_threads / kRowChunks) {
    int32_t tile = line / columns;
    int32_t row = line - tile * columns;
    uint32_t address = block_chunk(block, line, chunk);
    for (int32_t i = 0; i < kChunkBytes; ++i) {
      int32_t byte =
          block.first_byte + tile * kTileRowBytes + chunk * kChunkBytes + i;
      bool is_present = row < tokens.num_rows && byte < tokens.row_bytes;
      store_byte(address + i,
                 is_present ? token_row<gathers>(tokens, row)[byte] : 0);
    }
  }
}

template <int32_t columns, bool gathers>
__device__ inline void load_token_block(const TokenRows& tokens,
                                        const TokenBlock& block, int32_t thread,
                                        int32_t num_threads,
                                        uint64_t* barrier) {
  if (has_aligned_rows(tokens)) {
    load_chunks<columns, gathers>(tokens, block, thread, num_threads);
    ptx::arrive_after_copies(barrier);
  } else {
    load_bytes<columns, gathers>(tokens, block, thread, num_threads);
    ptx::barrier_arrive(barrier);
  }
}

}

#endif
