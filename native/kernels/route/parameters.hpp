#ifndef GLM_KERNELS_ROUTE_PARAMETERS_HPP
#define GLM_KERNELS_ROUTE_PARAMETERS_HPP

#include <cuda_bf16.h>
#include <cuda_runtime.h>

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
constexpr int32_t kMaxTokenBlocks = 4;
constexpr int32_t kClustersAtOnce = 15;
constexpr int32_t kMostClusterRows =
    kClustersAtOnce * kMaxTokenBlocks * kFragmentTokens;
constexpr int32_t kChunkElements = 8;
constexpr int32_t kTokenTileElements = 64;
constexpr int32_t kSharedLimit = 227 * 1024;
constexpr int32_t kStaticBytes = 3 * 1024;
constexpr int32_t kTokensOfTwoShares = 16;

struct RouteParameters {
  const uint8_t* router;
  const __nv_bfloat16* input;
  const float* selection_bias;
  int32_t* expert_ids;
  float* expert_weights;
  int32_t num_tokens;
  int32_t hidden_size;
  int32_t num_experts;
  int32_t num_fragments;
  int32_t num_column_tiles;
  int32_t top_k;
  int32_t num_shared;
  int32_t normalise;
  float scaling_factor;
  int32_t num_stages;
  int32_t num_shares;
};

struct SharedPlan {
  int32_t own_fragments;
  int32_t slab_bytes;
  int32_t token_tile_bytes;
  int32_t num_token_tiles;
  int32_t num_padded;

  __host__ __device__ SharedPlan(const RouteParameters& p, int32_t dtype,
                                 int32_t token_blocks)
      : own_fragments(p.num_fragments / p.num_shares),
        slab_bytes(own_fragments * kFragmentExperts * kTileRowBytes),
        token_tile_bytes(token_blocks * kFragmentTokens * kTileRowBytes),
        num_token_tiles(static_cast<int32_t>(
            ceil_divide(ceil_divide(p.num_column_tiles, kParts),
                        dtype == GLM_DTYPE_F32 ? 2 : 1))),
        num_padded(p.num_fragments * kFragmentExperts) {}

  __host__ __device__ int32_t fixed_bytes(int32_t token_blocks) const {
    return token_tile_bytes * num_token_tiles +
           kParts * token_blocks * num_padded * 4;
  }
};

inline int32_t token_blocks_for(int32_t num_tokens) {
  constexpr int32_t kTokensAtOnce = kClustersAtOnce * kFragmentTokens;
  if (num_tokens <= kTokensAtOnce) return 1;
  return num_tokens <= 2 * kTokensAtOnce ? 2 : kMaxTokenBlocks;
}

inline int32_t shares_for(const RouteParameters& p) {
  return p.num_tokens <= kTokensOfTwoShares && p.num_fragments % 2 == 0 ? 2 : 1;
}

inline int32_t stages_that_fit(const RouteParameters& p, int32_t dtype,
                               int32_t token_blocks) {
  const SharedPlan plan(p, dtype, token_blocks);
  return (kSharedLimit - kStaticBytes - plan.fixed_bytes(token_blocks)) /
         plan.slab_bytes;
}

__host__ __device__ inline int32_t first_tile(int32_t num_column_tiles,
                                              int32_t part) {
  return static_cast<int32_t>(int64_t{num_column_tiles} * part / kParts);
}

void launch_route(cudaStream_t stream, int32_t dtype,
                  const RouteParameters& parameters);

}

#endif
