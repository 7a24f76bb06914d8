#pragma once

#include <cuda.h>

#include <cstdint>

#include "native/collectives/peer/peer_rows.hpp"
#include "native/kernels/context.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/prefill/scratch.hpp"
#include "native/kernels/stream/product_plan.hpp"

namespace glm::kernels::prefill {

constexpr int32_t kPromotedTileTokens = 192;
constexpr int32_t kRegisterTileTokens = 128;
constexpr int32_t kSmallTileTokens = 64;
constexpr int32_t kWidthStep = 16;
constexpr int32_t kClusterSize = 2;

struct TokenMaps {
  CUtensorMap of_width[kTileTokens / kWidthStep];
};

struct ProductMatrix {
  const uint8_t* weights = nullptr;
  int64_t expert_stride = 0;
  const float* channel_scale = nullptr;
  int64_t channel_scale_stride = 0;
  int32_t rows = 0;
  int32_t num_row_tiles = 0;
  int32_t num_column_tiles = 0;

  GLM_HOST_DEVICE int32_t num_row_pairs() const {
    return (num_row_tiles + kClusterSize - 1) / kClusterSize;
  }
};

struct Product {
  ProductMatrix matrix;
  ProductMatrix shared;
  int32_t shared_expert = -1;
  const float* bias = nullptr;
  const float* token_scale = nullptr;
  const int32_t* expert_begin = nullptr;
  int32_t num_experts = 1;
  int32_t num_tokens = 0;
  int32_t tile_tokens = kTileTokens;
  int32_t role = GLM_MATRIX_LINEAR;
  stream::PartBands parts;
  float* kept = nullptr;
  void* output = nullptr;
  int64_t output_stride = 0;
  bool wide_stores = false;
  collectives::PeerRows peers = {};
};

ProductMatrix describe_matrix(const glm_matrix& matrix);
Product describe(const glm_matrix& matrix);
int32_t most_tile_tokens(int32_t dtype);
int32_t tile_tokens_of(int32_t dtype, const Product& product,
                       int32_t num_clusters);
int32_t expert_tile_tokens_of(int32_t dtype, int32_t num_choices,
                              int32_t num_experts);

TokenMaps token_maps(const char* where, const void* data, int32_t dtype,
                     const Product& product, int64_t columns,
                     int64_t stride_bytes);

void product_fp8(const Context& context, const TokenMaps& tokens,
                 const Product& product);
void product_bf16(const Context& context, const TokenMaps& tokens,
                  const Product& product);
void product_fp8_partial(const Context& context, const TokenMaps& tokens,
                         const Product& product);
void product_bf16_partial(const Context& context, const TokenMaps& tokens,
                          const Product& product);
void product_fp8_swiglu(const Context& context, const TokenMaps& tokens,
                        const Product& product);
void product_bf16_swiglu(const Context& context, const TokenMaps& tokens,
                         const Product& product);

}
