#include "native/kernels/linear/linear.hpp"

#include <algorithm>

#include "native/base/failure.hpp"
#include "native/collectives/peer/peer_rank.hpp"
#include "native/kernels/blackwell/operations.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/linear/streamed_products.hpp"
#include "native/kernels/prefill/prefill.hpp"
#include "native/kernels/shapes/shapes.hpp"
#include "native/kernels/stream/token_map.hpp"

namespace glm::kernels {

namespace {

constexpr const char* kWhere = "linear";
constexpr int32_t kActivationBytes = 2;

void validate(const glm_linear_args& args) {
  expect_linear_shapes(args);
  expect_pointer(kWhere, "matrix.data", args.matrix->data);
  if (args.num_tokens == 0) return;
  expect_pointer(kWhere, "output", args.output);
  if (args.matrix->dtype == GLM_DTYPE_F8_E4M3) {
    expect_pointer(kWhere, "input.codes", args.input.codes);
    expect_pointer(kWhere, "input.row_scale", args.input.row_scale);
    expect_pointer(kWhere, "matrix.row_scale", args.matrix->row_scale);
  } else {
    expect_pointer(kWhere, "input.plain", args.input.plain);
  }
}

stream::TokenRows input_rows(const glm_linear_args& args, int32_t row_begin,
                             int32_t num_rows) {
  const glm_matrix& matrix = *args.matrix;
  bool is_fp8 = matrix.dtype == GLM_DTYPE_F8_E4M3;
  int32_t row_bytes = matrix.columns * (is_fp8 ? 1 : kActivationBytes);
  const uint8_t* data =
      is_fp8 ? args.input.codes : static_cast<const uint8_t*>(args.input.plain);
  return {data + int64_t{row_begin} * row_bytes, num_rows, row_bytes};
}

stream::ProductArgs product_args(const glm_linear_args& args, int32_t row_begin,
                                 int32_t num_rows) {
  const glm_matrix& matrix = *args.matrix;
  bool is_fp8 = matrix.dtype == GLM_DTYPE_F8_E4M3;
  stream::ProductArgs product = {};
  product.tiles = static_cast<const uint8_t*>(matrix.data);
  product.channel_scale = is_fp8 ? matrix.row_scale : nullptr;
  product.bias = matrix.bias;
  product.tokens = input_rows(args, row_begin, num_rows);
  product.token_scale = is_fp8 ? args.input.row_scale + row_begin : nullptr;
  product.output = static_cast<uint8_t*>(args.output) +
                   int64_t{row_begin} * matrix.rows * kActivationBytes;
  product.role = matrix.role;
  product.rows = matrix.rows;
  product.num_column_tiles = num_column_tiles(matrix.dtype, matrix.columns);
  return product;
}

bool fills_wide_tiles(const glm_linear_args& args) {
  return args.num_tokens > stream::kMaxTokens &&
         stream::allows_token_map(input_rows(args, 0, args.num_tokens));
}

collectives::PeerRows rows_of_peers(const Context& context,
                                    const glm_linear_args& args) {
  const bool sends = args.matrix->role == GLM_MATRIX_LINEAR &&
                     (fills_wide_tiles(args) ||
                      args.num_tokens <= stream::kMostTokensSentAhead);
  if (!sends) return {};
  return collectives::reserve_exchange(
      context.peers, kWhere, args.part_of_sum,
      {args.output, args.num_tokens, args.matrix->rows});
}

void streamed_linear(const Context& context, const glm_linear_args& args,
                     const collectives::PeerRows& peers) {
  const glm_matrix& matrix = *args.matrix;
  stream::MatrixTiles tiles{num_row_tiles(matrix.role, matrix.rows),
                            num_column_tiles(matrix.dtype, matrix.columns)};
  for (int32_t row = 0; row < args.num_tokens; row += stream::kMaxTokens) {
    int32_t count = std::min(args.num_tokens - row, stream::kMaxTokens);
    stream::ProductArgs product = product_args(args, row, count);
    product.peers = peers;
    stream::ProductPlans plans = stream::plan_product(tiles, count);
    if (matrix.dtype == GLM_DTYPE_F8_E4M3) {
      streamed_fp8_linear(context, plans, product);
    } else {
      streamed_bf16_linear(context, plans, product);
    }
  }
}

}

void linear(const Context& context, const glm_linear_args& args) {
  validate(args);
  if (blackwell::multiplies(context, args.matrix->dtype))
    return blackwell::linear(context, args);
  if (args.num_tokens == 0) return;
  const collectives::PeerRows peers = rows_of_peers(context, args);
  if (fills_wide_tiles(args)) return prefill_linear(context, args, peers);
  streamed_linear(context, args, peers);
}

}
