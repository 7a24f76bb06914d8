#include <cuda.h>

#include <algorithm>

#include "native/kernels/prefill/product.hpp"
#include "native/kernels/rows/tensor_map.hpp"

namespace glm::kernels::prefill {
namespace {

constexpr int32_t kTokensOfOverhead = 32;
constexpr int32_t kColumnTilesOfKeeping = 3;

int64_t column_tiles_with_keeping(int32_t dtype, const Product& product,
                                  int64_t tile_tokens) {
  const int32_t num_tiles = product.matrix.num_column_tiles;
  if (dtype == GLM_DTYPE_F8_E4M3 && tile_tokens <= kRegisterTileTokens)
    return num_tiles;
  const auto& parts = product.parts.num_parts;
  return num_tiles + kColumnTilesOfKeeping * (std::max(parts[0], parts[1]) - 1);
}

}

TokenMaps token_maps(const char* where, const void* data, int32_t dtype,
                     const Product& product, int64_t columns,
                     int64_t stride_bytes) {
  RowBoxes boxes;
  boxes.data = data;
  boxes.element = dtype == GLM_DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                          : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  boxes.columns = columns;
  boxes.num_rows = product.num_tokens;
  boxes.stride_bytes = stride_bytes;
  boxes.box_columns = kTileRowBytes / dtype_bytes(dtype);
  boxes.promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  TokenMaps maps;
  for (int32_t i = 0; i * kWidthStep < product.tile_tokens; ++i) {
    boxes.box_rows = (i + 1) * kWidthStep / kClusterSize;
    maps.of_width[i] = tensor_map(where, boxes);
  }
  return maps;
}

ProductMatrix describe_matrix(const glm_matrix& matrix) {
  ProductMatrix described;
  described.weights = static_cast<const uint8_t*>(matrix.data);
  described.channel_scale =
      matrix.dtype == GLM_DTYPE_F8_E4M3 ? matrix.row_scale : nullptr;
  described.rows = matrix.rows;
  described.num_row_tiles = num_row_tiles(matrix.role, matrix.rows);
  described.num_column_tiles = num_column_tiles(matrix.dtype, matrix.columns);
  return described;
}

Product describe(const glm_matrix& matrix) {
  Product product;
  product.matrix = describe_matrix(matrix);
  product.bias = matrix.bias;
  product.role = matrix.role;
  return product;
}

int32_t most_tile_tokens(int32_t dtype) {
  return dtype == GLM_DTYPE_F8_E4M3 ? kPromotedTileTokens : kTileTokens;
}

int32_t tile_tokens_of(int32_t dtype, const Product& product,
                       int32_t num_clusters) {
  const int64_t pairs = product.matrix.num_row_pairs();
  const int32_t num_tokens = product.num_tokens;
  const int32_t most = most_tile_tokens(dtype);
  int32_t best = most;
  int64_t least = INT64_MAX;
  for (int32_t tokens = most; tokens >= kSmallTileTokens;
       tokens -= kWidthStep) {
    const int64_t tiles = ceil_divide(num_tokens, tokens);
    const int64_t rounds = ceil_divide(pairs * tiles, num_clusters);
    const int64_t share = round_up(ceil_divide(num_tokens, tiles), kWidthStep);
    const int64_t cost = rounds * (share + kTokensOfOverhead) *
                         column_tiles_with_keeping(dtype, product, share);
    if (cost >= least) continue;
    least = cost;
    best = std::max(static_cast<int32_t>(share), kSmallTileTokens);
  }
  return best;
}

int32_t expert_tile_tokens_of(int32_t dtype, int32_t num_choices,
                              int32_t num_experts) {
  int32_t tokens = kTileTokens;
  while (tokens > kSmallTileTokens &&
         4 * int64_t{num_choices} < int64_t{3} * num_experts * tokens / 2)
    tokens /= 2;
  return std::min(tokens, most_tile_tokens(dtype));
}

}
