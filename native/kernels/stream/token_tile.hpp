#pragma once

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/product_args.hpp"

namespace glm::kernels::stream {

template <int32_t num_tokens, int32_t num_threads>
__device__ inline void copy_token_tile(const TokenRows& tokens,
                                       int32_t first_token, int32_t first_byte,
                                       uint8_t* target, int32_t thread) {
#pragma unroll 1
  for (int32_t item = thread; item < num_tokens * kTileRowBytes;
       item += num_threads) {
    int32_t row = item / kTileRowBytes;
    int32_t token = first_token + row;
    int32_t within = item % kTileRowBytes;
    int32_t byte = first_byte + within;
    bool is_present = token < tokens.num_rows && byte < tokens.row_bytes;
    target[swizzle(row, within)] =
        is_present ? tokens.data[int64_t{token} * tokens.row_bytes + byte] : 0;
  }
}

}
