#ifndef GLM_KERNELS_STREAM_TOKEN_BLOCK_HPP
#define GLM_KERNELS_STREAM_TOKEN_BLOCK_HPP

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/product_args.hpp"

namespace glm::kernels::stream {

struct TokenBlock {
  uint8_t* data;
  int32_t first_byte;
  int32_t num_tiles;
};

template <int32_t columns>
__device__ __noinline__ void load_token_block(const TokenRows& tokens,
                                              const TokenBlock& block,
                                              int32_t thread,
                                              int32_t num_threads) {
  int32_t count = block.num_tiles * columns * kTileRowBytes;
  for (int32_t item = thread; item < count; item += num_threads) {
    int32_t line = item / kTileRowBytes;
    int32_t tile = line / columns;
    int32_t row = line - tile * columns;
    int32_t within = item % kTileRowBytes;
    int32_t byte = block.first_byte + tile * kTileRowBytes + within;
    bool is_present = row < tokens.num_rows && byte < tokens.row_bytes;
    block.data[swizzle(line, within)] =
        is_present ? tokens.data[int64_t{row} * tokens.row_bytes + byte] : 0;
  }
}

}

#endif
