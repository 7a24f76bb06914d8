#pragma once

#include <cstdint>

#include "native/collectives/peer/peer_rows.hpp"
#include "native/kernels/layout.hpp"

namespace glm::kernels::stream {

constexpr int32_t kMaxStages = 16;
constexpr int32_t kWarpgroupRows = 64;
constexpr int32_t kWarpgroupBytes = kWarpgroupRows * kTileRowBytes;
constexpr int32_t kWarpgroupThreads = 128;
constexpr int32_t kWarpThreads = 32;
constexpr int32_t kWarpgroupWarps = kWarpgroupThreads / kWarpThreads;
constexpr int32_t kPartGroups = 2;
constexpr int32_t kPartWarps = kPartGroups * kWarpgroupWarps;
constexpr int32_t kMultiplierThreads = kPartGroups * kWarpgroupThreads;
constexpr int32_t kMaxSplit = 8;
constexpr int32_t kMaxTokens = 256;
constexpr int32_t kGroupTokens = 8;
constexpr int32_t kFragmentRows = 16;
constexpr int32_t kMostTokensSentAhead = 16;
constexpr int32_t kMostEagerGroups = 6;
constexpr int32_t kReciprocalBits = 16;
constexpr int32_t kPieceBytes = kWarpThreads * 16;

enum class UnitForm : int32_t { broad, tall };

struct TokenRows {
  const uint8_t* data;
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
  collectives::PeerRows peers;
  int32_t role;
  int32_t rows;
  int32_t num_column_tiles;
};

struct ProductShape {
  int32_t split;
  int32_t split_reciprocal;
  int32_t first_unit;
  int32_t end_unit;
  int32_t num_longer_parts;
  int32_t num_stages;
  int32_t num_in_flight;
  int32_t exchange_offset;
  int32_t reuses_stages;
  int32_t keeps_own;
  int32_t has_token_map;
  int32_t stores_words;
  int32_t part_tiles;
};

}
