#include "native/kernels/logits/logits.hpp"

#include <algorithm>

#include "native/base/failure.hpp"
#include "native/kernels/blackwell/operations.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/logits/gather.hpp"
#include "native/kernels/logits/logits_products.hpp"
#include "native/kernels/logits/scratch.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::kernels {

namespace {

constexpr const char* kWhere = "logits";

void validate(const glm_logits_args& args) {
  expect_logits_shapes(args);
  expect_pointer(kWhere, "head.data", args.head->data);
  if (args.num_rows == 0) return;
  expect_pointer(kWhere, "input", args.input);
  expect_pointer(kWhere, "output", args.output);
}

int32_t gathered_capacity(const Context& context, const glm_logits_args& args) {
  int64_t rows = context.scratch.bytes / gathered_row_bytes(args.head->columns);
  expect_range(kWhere, "rows of scratch", 1, INT64_MAX, rows);
  return static_cast<int32_t>(std::min<int64_t>(rows, args.num_rows));
}

stream::ProductArgs product_args(const glm_logits_args& args,
                                 const GatherArgs& gathered,
                                 int32_t row_begin) {
  const glm_matrix& head = *args.head;
  stream::ProductArgs product = {};
  product.tiles = static_cast<const uint8_t*>(head.data);
  product.bias = head.bias;
  product.tokens = {gathered.output, gathered.num_rows,
                    gathered.output_row_bytes};
  product.output = args.output + int64_t{row_begin} * head.rows;
  product.role = head.role;
  product.rows = head.rows;
  product.num_column_tiles = num_column_tiles(head.dtype, head.columns);
  return product;
}

}

void logits(const Context& context, const glm_logits_args& args) {
  validate(args);
  if (args.num_rows == 0) return;
  if (blackwell::multiplies(context, args.head->dtype))
    return blackwell::logits(context, args);
  const glm_matrix& head = *args.head;
  const stream::MatrixTiles tiles{num_row_tiles(head.role, head.rows),
                                  num_column_tiles(head.dtype, head.columns)};
  int32_t chunk =
      std::min(stream::kMaxTokens, gathered_capacity(context, args));
  for (int32_t row = 0; row < args.num_rows; row += chunk) {
    GatherArgs gather =
        gather_args(args, row, std::min(args.num_rows - row, chunk),
                    gathered_row_bytes(head.columns), context.scratch.data);
    gather_rows(context, gather);
    bf16_logits(context, stream::plan_product(tiles, gather.num_rows),
                product_args(args, gather, row));
  }
}

}
