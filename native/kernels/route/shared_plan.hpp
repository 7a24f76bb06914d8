#pragma once

#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels::routing {

constexpr int32_t kWarpThreads = 32;
constexpr int32_t kFragmentExperts = 16;
constexpr int32_t kFragmentTokens = 8;
constexpr int32_t kMaxExperts = 256;
constexpr int32_t kMaxWarps = kMaxExperts / kFragmentExperts;
constexpr int32_t kMaxThreads = (kMaxWarps + 1) * kWarpThreads;
constexpr int32_t kMaxTopK = 32;
constexpr int32_t kMaxStages = 24;
constexpr int32_t kParts = 8;
constexpr int32_t kPartsOfBlock = 2;
constexpr int32_t kBlocksOfTile = kParts / kPartsOfBlock;
constexpr int32_t kMaxTokenBlocks = 4;
constexpr int32_t kClustersAtOnce = 15;
constexpr int32_t kMostClusterRows =
    kClustersAtOnce * kMaxTokenBlocks * kFragmentTokens;
constexpr int32_t kChunkElements = 8;
constexpr int32_t kTokenTileElements = 64;
constexpr int32_t kSharedLimit = 227 * 1024;
constexpr int32_t kStaticBytes = 3 * 1024;
constexpr int32_t kTokensOfTwoShares = 16;

constexpr int64_t sums_row_bytes(int32_t num_fragments) {
  return int64_t{kBlocksOfTile} * num_fragments * kFragmentExperts *
         static_cast<int64_t>(sizeof(float));
}

struct RouterTiles {
  int32_t num_fragments;
  int32_t num_column_tiles;
  int32_t num_shares;
};

struct SharedPlan {
  int32_t own_fragments;
  int32_t slab_bytes;
  int32_t token_tile_bytes;
  int32_t num_token_tiles;
  int32_t num_padded;

  template <typename Router>
  GLM_HOST_DEVICE SharedPlan(const Router& p, int32_t dtype,
                             int32_t token_blocks)
      : own_fragments(p.num_fragments / p.num_shares),
        slab_bytes(own_fragments * kFragmentExperts * kTileRowBytes),
        token_tile_bytes(token_blocks * kFragmentTokens * kTileRowBytes),
        num_token_tiles(static_cast<int32_t>(
            ceil_divide(ceil_divide(p.num_column_tiles, kParts),
                        dtype == GLM_DTYPE_F32 ? 2 : 1))),
        num_padded(p.num_fragments * kFragmentExperts) {}

  GLM_HOST_DEVICE int32_t fixed_bytes(int32_t token_blocks) const {
    return token_tile_bytes * num_token_tiles +
           kParts * token_blocks * num_padded * 4;
  }
};

inline int32_t token_blocks_for(int32_t num_tokens) {
  constexpr int32_t kTokensAtOnce = kClustersAtOnce * kFragmentTokens;
  if (num_tokens <= kTokensAtOnce) return 1;
  return num_tokens <= 2 * kTokensAtOnce ? 2 : kMaxTokenBlocks;
}

inline int32_t shares_for(int32_t num_tokens, int32_t num_fragments) {
  return num_tokens <= kTokensOfTwoShares && num_fragments % 2 == 0 ? 2 : 1;
}

template <typename Router>
int32_t stages_that_fit(const Router& p, int32_t dtype, int32_t token_blocks) {
  const SharedPlan plan(p, dtype, token_blocks);
  return (kSharedLimit - kStaticBytes - plan.fixed_bytes(token_blocks)) /
         plan.slab_bytes;
}

}
