#ifndef GLM_KERNELS_STREAM_PRODUCT_ARGS_HPP
#define GLM_KERNELS_STREAM_PRODUCT_ARGS_HPP

#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels::stream {

constexpr int32_t kMaxStages = 16;
constexpr int32_t kWarpgroupRows = 64;
constexpr int32_t kWarpgroupBytes = kWarpgroupRows * kTileRowBytes;
constexpr int32_t kWarpgroupThreads = 128;
constexpr int32_t kWarpThreads = 32;
constexpr int32_t kMaxWarpgroups = 2;
constexpr int32_t kExchangeTokens = 64;
constexpr int32_t kExchangePad = 4;

struct TokenRows {
  const uint8_t* data;
  const int32_t* row_index;
  int32_t num_rows;
  int32_t row_bytes;
};

struct ProductArgs {
  const uint8_t* tiles;
  const float* channel_scale;
  const float* bias;
  TokenRows tokens;
  const float* token_scale;
  void* output;
  int32_t role;
  int32_t rows;
  int32_t num_column_tiles;
  int32_t num_units;
  int32_t num_warpgroups;
  int32_t split;
  int32_t num_stages;
};

__host__ __device__ constexpr int32_t part_begin(int32_t num_tiles,
                                                 int32_t split, int32_t part) {
  return static_cast<int32_t>(int64_t{num_tiles} * part / split);
}

__host__ __device__ constexpr int32_t exchange_tokens(int32_t columns) {
  return columns < kExchangeTokens ? columns : kExchangeTokens;
}

__host__ __device__ constexpr int32_t slice_tokens(int32_t columns,
                                                   int32_t split) {
  return static_cast<int32_t>(ceil_divide(exchange_tokens(columns), split));
}

__host__ __device__ constexpr int32_t exchange_pitch(int32_t num_warpgroups) {
  return num_warpgroups * kWarpgroupRows + kExchangePad;
}

}

#endif
