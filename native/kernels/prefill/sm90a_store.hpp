#pragma once

#include <cuda_bf16.h>

#include "native/collectives/peer/send_ahead.hpp"
#include "native/kernels/prefill/sm90a_tiles.hpp"
#include "native/kernels/rows/swiglu.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/stmatrix.hpp"

namespace glm::kernels::prefill {

enum class Output { kChannels, kPartial, kHiddenFloat, kHiddenBf16 };

constexpr int32_t kStagingBytes = 4096;
constexpr int32_t kGroupRows = 64;
constexpr int32_t kStoreThreads = 128;
constexpr int32_t kBlockColumns = 8;

template <Output output>
struct Staged {
  static constexpr int32_t kRowBytes = kGroupRows * 2;
  static constexpr int32_t kTokens = kStagingBytes / kRowBytes;
  static constexpr int32_t kBlocks = kTokens / kBlockColumns;
  static constexpr int32_t kUnitsARow = kRowBytes / 16;
  static constexpr int32_t kRowsAPass = kStoreThreads / kUnitsARow;
  static constexpr int32_t kPasses = kTokens / kRowsAPass;
};

struct TileParts {
  int32_t count;
  int32_t most_tiles;
  int32_t num_longer;

  __device__ int32_t num_tiles(int32_t part) const {
    return most_tiles - (part < num_longer ? 0 : 1);
  }
};

__device__ inline TileParts parts_of(const Product& product,
                                     const ProductMatrix& matrix,
                                     int32_t row_tile) {
  const int32_t count = product.parts.of_row_tile(row_tile);
  const int32_t least = matrix.num_column_tiles / count;
  return {count, least + 1, matrix.num_column_tiles - least * count};
}

struct alignas(16) Prepared {
  float token_scale[kTileTokens];
  float channel_scale[kTileRows];
  float bias[kTileRows];
  Tile tile;
  TileParts parts;
};

struct Scales {
  float channel[2];
  float bias[2];
};

__device__ inline int32_t group_thread() {
  return static_cast<int32_t>(threadIdx.x) % kStoreThreads;
}

struct TileScales {
  static constexpr int32_t kTokens = kTileTokens / 32;
  static constexpr int32_t kChannels = kTileRows / 32;
  float token[kTokens];
  float channel[kChannels];
  float bias[kChannels];

  __device__ TileScales(const Product& product, const ProductMatrix& matrix,
                        const Tile& tile, int32_t row_tile) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const float* tokens = product.token_scale;
    const float* channels =
        matrix.channel_scale + tile.expert * matrix.channel_scale_stride;
    const bool is_scaled = matrix.channel_scale != nullptr;
    const bool is_inside =
        tile.num_tokens > 0 && row_tile < matrix.num_row_tiles;
    const int32_t rows = matrix.rows;
#pragma unroll
    for (int32_t i = 0; i < kTokens; ++i) {
      const int32_t place = i * 32 + lane;
      const bool present = tokens != nullptr && place < tile.num_tokens;
      token[i] = present ? tokens[tile.token_begin + place] : 1.0f;
    }
#pragma unroll
    for (int32_t i = 0; i < kChannels; ++i) {
      const int32_t row =
          logical_row(product.role, rows, row_tile * kTileRows + i * 32 + lane);
      const bool present = is_inside && row >= 0;
      channel[i] = present && is_scaled ? channels[row] : 1.0f;
      bias[i] = present && product.bias != nullptr ? product.bias[row] : 0.0f;
    }
  }

  __device__ void store(Prepared& prepared) const {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
    for (int32_t i = 0; i < kTokens; ++i)
      prepared.token_scale[i * 32 + lane] = token[i];
#pragma unroll
    for (int32_t i = 0; i < kChannels; ++i) {
      prepared.channel_scale[i * 32 + lane] = channel[i];
      prepared.bias[i * 32 + lane] = bias[i];
    }
  }
};

__device__ inline Scales load_scales(const Prepared& prepared, int32_t group) {
  Scales scales;
  const int32_t row =
      group * kGroupRows + group_thread() / 32 * 16 + group_thread() % 32 / 4;
#pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    scales.channel[i] = prepared.channel_scale[row + i * kPairRows];
    scales.bias[i] = prepared.bias[row + i * kPairRows];
  }
  return scales;
}

struct Target {
  uint8_t* row;
  int64_t pass_bytes;
  int32_t packed;
  bool stores;
};

template <Output output>
__device__ inline Target target_of(const Product& product,
                                   const ProductMatrix& matrix,
                                   const Tile& tile, int32_t row_tile,
                                   int32_t group) {
  using Rows = Staged<output>;
  constexpr bool kIsFloat = output == Output::kHiddenFloat;
  constexpr int32_t kElement = kIsFloat ? 4 : 2;
  const int32_t unit = group_thread() % Rows::kUnitsARow;
  const int64_t token = tile.token_begin + group_thread() / Rows::kUnitsARow;
  const int32_t packed_begin = row_tile * kTileRows + group * kGroupRows;
  Target target;
  target.packed = packed_begin + unit * kPairRows;
  int32_t channel = packed_begin / 2 + unit * 4;
  target.stores =
      row_tile < matrix.num_row_tiles && channel < product.output_stride;
  if constexpr (output == Output::kChannels || output == Output::kPartial) {
    channel = logical_row(product.role, matrix.rows, target.packed);
    target.stores = row_tile < matrix.num_row_tiles && channel >= 0;
  }
  target.row = static_cast<uint8_t*>(product.output) +
               (token * product.output_stride + channel) * kElement;
  target.pass_bytes = Rows::kRowsAPass * product.output_stride * kElement;
  return target;
}

template <Output output>
__device__ inline int32_t staging_offset(int32_t token, int32_t unit) {
  return token * Staged<output>::kRowBytes + (unit ^ (token & 7)) * 16;
}

__device__ inline uint32_t pack_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <Output output>
struct TokenScales {
  float2 pair[Staged<output>::kBlocks];

  __device__ explicit TokenScales(const float* token_scale) {
#pragma unroll
    for (int32_t block = 0; block < Staged<output>::kBlocks; ++block)
      pair[block] = *reinterpret_cast<const float2*>(
          token_scale + block * kBlockColumns + group_thread() % 4 * 2);
  }

  __device__ float of(int32_t block, int32_t i) const {
    return i == 0 ? pair[block].x : pair[block].y;
  }
};

__device__ inline float scaled(float sum, float channel_scale,
                               float token_scale) {
  return __fmul_rn(__fmul_rn(sum, channel_scale), token_scale);
}

template <Output output>
__device__ inline void stage_channels(const float* sums, const Scales& scales,
                                      const TokenScales<output>& tokens,
                                      uint8_t* staging) {
  using Rows = Staged<output>;
  const int32_t lane = group_thread() % 32;
  const int32_t warp = group_thread() / 32;
  const uint32_t address =
      ptx::shared_address(staging) +
      static_cast<uint32_t>(staging_offset<output>(lane / 16 * 8 + lane % 8,
                                                   warp * 2 + lane / 8 % 2));
#pragma unroll
  for (int32_t pair = 0; pair < Rows::kBlocks / 2; ++pair) {
    uint32_t values[4];
#pragma unroll
    for (int32_t matrix = 0; matrix < 4; ++matrix) {
      const int32_t block = pair * 2 + matrix / 2;
      const int32_t half = matrix % 2;
      const float2 token = tokens.pair[block];
      const float* sum = sums + block * 4 + half * 2;
      const float scale = scales.channel[half];
      if constexpr (output == Output::kPartial)
        values[matrix] = pack_pair(scaled(sum[0], scale, token.x),
                                   scaled(sum[1], scale, token.y));
      else
        values[matrix] = pack_pair(
            __fmaf_rn(__fmul_rn(sum[0], token.x), scale, scales.bias[half]),
            __fmaf_rn(__fmul_rn(sum[1], token.y), scale, scales.bias[half]));
    }
    ptx::store_matrices_transposed(
        address + static_cast<uint32_t>(pair * 16 * Rows::kRowBytes), values);
  }
}

template <Output output>
__device__ inline void stage_hidden(const float* sums, const Scales& scales,
                                    const TokenScales<output>& tokens,
                                    uint8_t* staging) {
  using Rows = Staged<output>;
  const int32_t lane = group_thread() % 32;
  const int32_t channel = group_thread() / 32 * 8 + lane / 4;
#pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    uint8_t* row = staging +
                   staging_offset<output>(lane % 4 * 2 + i, channel / 4) +
                   channel % 4 * 4;
#pragma unroll
    for (int32_t block = 0; block < Rows::kBlocks; ++block) {
      const float token = tokens.of(block, i);
      *reinterpret_cast<float*>(row + block * kBlockColumns * Rows::kRowBytes) =
          swiglu(scaled(sums[block * 4 + i], scales.channel[0], token),
                 scaled(sums[block * 4 + 2 + i], scales.channel[1], token));
    }
  }
}

__device__ inline void write_narrow(const Product& product, int32_t rows,
                                    const Target& target, uint8_t* row,
                                    uint4 values) {
  const auto* each = reinterpret_cast<const __nv_bfloat16*>(&values);
  const int32_t first = logical_row(product.role, rows, target.packed);
#pragma unroll
  for (int32_t i = 0; i < kPairRows; ++i)
    if (logical_row(product.role, rows, target.packed + i) == first + i)
      reinterpret_cast<__nv_bfloat16*>(row)[i] = each[i];
}

template <Output output>
__device__ inline void write_wide(uint8_t* row, uint4 values) {
  if constexpr (output == Output::kHiddenBf16) {
    const auto& four = reinterpret_cast<const float4&>(values);
    *reinterpret_cast<uint2*>(row) =
        make_uint2(pack_pair(four.x, four.y), pack_pair(four.z, four.w));
  } else {
    *reinterpret_cast<uint4*>(row) = values;
  }
}

__device__ inline int64_t element_of(const Product& product,
                                     const Target& target) {
  return (target.row - static_cast<uint8_t*>(product.output)) /
         collectives::kElementBytes;
}

template <Output output>
__device__ inline void write_staged(const Product& product, int32_t rows,
                                    Target& target, int32_t first_token,
                                    int32_t num_tokens,
                                    const uint8_t* staging) {
  using Rows = Staged<output>;
  const int32_t token = group_thread() / Rows::kUnitsARow;
  const uint8_t* staged =
      staging +
      staging_offset<output>(token, group_thread() % Rows::kUnitsARow);
  uint4 values[Rows::kPasses];
#pragma unroll
  for (int32_t pass = 0; pass < Rows::kPasses; ++pass)
    values[pass] = *reinterpret_cast<const uint4*>(
        staged + pass * Rows::kRowsAPass * Rows::kRowBytes);
  const bool wide =
      (output != Output::kChannels && output != Output::kPartial) ||
      product.wide_stores;
#pragma unroll
  for (int32_t pass = 0; pass < Rows::kPasses; ++pass) {
    const bool stores =
        target.stores && token + pass * Rows::kRowsAPass < num_tokens;
    if (stores && wide) write_wide<output>(target.row, values[pass]);
    if (output == Output::kChannels && stores)
      collectives::send_ahead(product.peers,
                              first_token + token + pass * Rows::kRowsAPass,
                              element_of(product, target), values[pass]);
    if (stores && !wide)
      write_narrow(product, rows, target, target.row, values[pass]);
    target.row += target.pass_bytes;
  }
}

template <Output output, int32_t num_sums>
__device__ inline void store_tokens(const Product& product,
                                    const ProductMatrix& matrix,
                                    const Prepared& prepared, int32_t row_tile,
                                    int32_t group,
                                    const float (&sums)[num_sums],
                                    uint8_t (&staging)[2][kStagingBytes],
                                    int32_t& turn) {
  using Rows = Staged<output>;
  const int32_t num_tokens = prepared.tile.num_tokens;
  const Scales scales = load_scales(prepared, group);
  Target target =
      target_of<output>(product, matrix, prepared.tile, row_tile, group);
#pragma unroll
  for (int32_t slice = 0; slice < num_sums * 2 / Rows::kTokens; ++slice) {
    const int32_t first = slice * Rows::kTokens;
    if (first >= num_tokens) break;
    const TokenScales<output> tokens(prepared.token_scale + first);
    if constexpr (output == Output::kChannels || output == Output::kPartial)
      stage_channels<output>(sums + first / 2, scales, tokens, staging[turn]);
    else
      stage_hidden(sums + first / 2, scales, tokens, staging[turn]);
    ptx::named_barrier<kStoreThreads>(1 + group);
    write_staged<output>(product, matrix.rows, target,
                         prepared.tile.token_begin + first, num_tokens - first,
                         staging[turn]);
    turn ^= 1;
  }
}

}
