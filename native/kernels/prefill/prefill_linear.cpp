#include "native/base/cuda.hpp"
#include "native/kernels/prefill/direct.hpp"
#include "native/kernels/prefill/prefill.hpp"
#include "native/kernels/prefill/product.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "prefill linear";

void expect_arguments(const glm_linear_args& args, int32_t row_begin,
                      int32_t num_rows) {
  expect_pointer(kWhere, "matrix", args.matrix);
  const glm_matrix& matrix = *args.matrix;
  expect_range(kWhere, "dtype", GLM_DTYPE_BF16, GLM_DTYPE_F8_E4M3,
               matrix.dtype);
  expect_range(kWhere, "role", GLM_MATRIX_LINEAR, GLM_MATRIX_GATE_UP,
               matrix.role);
  expect_range(kWhere, "num_tokens", 0, INT32_MAX, args.rows.num_tokens);
  expect_range(kWhere, "row_begin", 0, args.rows.num_tokens, row_begin);
  expect_range(kWhere, "num_rows", 0, args.rows.num_tokens - row_begin,
               num_rows);
  expect_range(kWhere, "rows", 0, INT32_MAX, matrix.rows);
  expect_range(kWhere, "columns", 1, INT32_MAX, matrix.columns);
  if (num_rows == 0 || matrix.rows == 0) return;
  expect_pointer(kWhere, "weights", matrix.data);
  expect_pointer(kWhere, "output", args.output);
  if (matrix.dtype != GLM_DTYPE_F8_E4M3) {
    expect_pointer(kWhere, "plain", args.input.plain);
    return;
  }
  expect_pointer(kWhere, "codes", args.input.codes);
  expect_pointer(kWhere, "row_scale of the tokens", args.input.row_scale);
  expect_pointer(kWhere, "row_scale of the matrix", matrix.row_scale);
}

bool are_stores_wide(const glm_matrix& matrix, const void* output) {
  const int32_t run =
      matrix.role == GLM_MATRIX_GATE_UP ? matrix.rows / 2 : matrix.rows;
  return run % kPairRows == 0 &&
         reinterpret_cast<uintptr_t>(output) % kChunkBytes == 0;
}

void linear_rows(const Context& context, const glm_matrix& matrix,
                 const uint8_t* tokens, const float* token_scale,
                 uint8_t* output, int32_t num_rows) {
  const int64_t row_bytes = int64_t{matrix.columns} * dtype_bytes(matrix.dtype);
  if (row_bytes % kChunkBytes != 0 ||
      reinterpret_cast<uintptr_t>(tokens) % kChunkBytes != 0) {
    prefill::direct_linear(context,
                           {num_rows, matrix, tokens, token_scale, output});
    return;
  }
  prefill::Product product = prefill::describe(matrix);
  product.num_tokens = num_rows;
  product.tile_tokens = prefill::tile_tokens_of(
      context.num_multiprocessors / prefill::kClusterSize,
      product.num_row_tiles, num_rows);
  product.token_scale = token_scale;
  product.output = output;
  product.output_stride = matrix.rows;
  product.wide_stores = are_stores_wide(matrix, output);
  const CUtensorMap map = prefill::tokens_map(
      kWhere, tokens, matrix.dtype, num_rows, matrix.columns, row_bytes);
  if (matrix.dtype == GLM_DTYPE_F8_E4M3)
    prefill::product_fp8(context, map, product);
  else
    prefill::product_bf16(context, map, product);
}

}

void prefill_linear(const Context& context, const glm_linear_args& args,
                    int32_t row_begin, int32_t num_rows) {
  expect_arguments(args, row_begin, num_rows);
  const glm_matrix& matrix = *args.matrix;
  if (num_rows == 0 || matrix.rows == 0) return;
  const bool is_fp8 = matrix.dtype == GLM_DTYPE_F8_E4M3;
  const int64_t row_bytes = int64_t{matrix.columns} * (is_fp8 ? 1 : 2);
  const auto* tokens =
      is_fp8 ? args.input.codes : static_cast<const uint8_t*>(args.input.plain);
  linear_rows(
      context, matrix, tokens + row_begin * row_bytes,
      is_fp8 ? args.input.row_scale + row_begin : nullptr,
      static_cast<uint8_t*>(args.output) + int64_t{row_begin} * matrix.rows * 2,
      num_rows);
}

}
