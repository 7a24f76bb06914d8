#include "native/kernels/logits/logits.hpp"

#include <algorithm>

#include "native/base/failure.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/logits/logits_products.hpp"

namespace glm::kernels {

namespace {

constexpr const char* kWhere = "logits";
constexpr int32_t kInputBytes = 2;
constexpr int32_t kPlainChunk = 8 * 65535;

void validate_head(const glm_matrix& head) {
  if (head.dtype == GLM_DTYPE_F8_E4M3) {
    throw Failure(GLM_NOT_SUPPORTED,
                  "logits: head.dtype: expected F32 or BF16, got F8_E4M3");
  }
  expect_range(kWhere, "head.dtype", GLM_DTYPE_F32, GLM_DTYPE_BF16, head.dtype);
  expect_equal(kWhere, "head.role", GLM_MATRIX_LINEAR, head.role);
  expect_range(kWhere, "head.rows", 1, INT32_MAX / 2, head.rows);
  expect_range(kWhere, "head.columns", 1, INT32_MAX / 8, head.columns);
  expect_pointer(kWhere, "head.data", head.data);
}

void validate(const glm_logits_args& args) {
  expect_range(kWhere, "num_rows", 0, INT32_MAX, args.num_rows);
  expect_pointer(kWhere, "head", args.head);
  validate_head(*args.head);
  if (args.num_rows == 0) return;
  expect_pointer(kWhere, "row_index", args.row_index);
  expect_pointer(kWhere, "input", args.input);
  expect_pointer(kWhere, "output", args.output);
}

stream::ProductArgs product_args(const glm_logits_args& args, int32_t row_begin,
                                 int32_t num_rows) {
  const glm_matrix& head = *args.head;
  stream::ProductArgs product = {};
  product.tiles = static_cast<const uint8_t*>(head.data);
  product.bias = head.bias;
  product.tokens = {static_cast<const uint8_t*>(args.input),
                    args.row_index + row_begin, num_rows,
                    head.columns * kInputBytes};
  product.output = args.output + int64_t{row_begin} * head.rows;
  product.role = head.role;
  product.rows = head.rows;
  product.num_column_tiles = num_column_tiles(head.dtype, head.columns);
  return product;
}

void plain_logits(const Context& context, const glm_logits_args& args) {
  for (int32_t row = 0; row < args.num_rows; row += kPlainChunk) {
    int32_t count = std::min(args.num_rows - row, kPlainChunk);
    f32_logits(context, product_args(args, row, count));
  }
}

}

void logits(const Context& context, const glm_logits_args& args) {
  validate(args);
  const glm_matrix& head = *args.head;
  if (head.dtype == GLM_DTYPE_F32) return plain_logits(context, args);
  int32_t row_tiles = num_row_tiles(head.role, head.rows);
  int32_t column_tiles = num_column_tiles(head.dtype, head.columns);
  stream::ProductPlan plan = stream::plan_product(row_tiles, column_tiles);
  int32_t chunk = stream::chunk_columns(kWhere, plan);
  for (int32_t row = 0; row < args.num_rows; row += chunk) {
    stream::ProductArgs product =
        product_args(args, row, std::min(args.num_rows - row, chunk));
    bf16_logits(context, plan, product);
  }
}

int64_t logits_scratch_bytes(const glm_workspace_shape&) { return 0; }

}
