#include "native/base/failure.hpp"
#include "native/kernels/prefill/prefill.hpp"
#include "native/kernels/prefill/product.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "prefill linear";

bool are_stores_wide(const glm_matrix& matrix, const void* output) {
  const int32_t run =
      matrix.role == GLM_MATRIX_GATE_UP ? matrix.rows / 2 : matrix.rows;
  return run % kPairRows == 0 &&
         reinterpret_cast<uintptr_t>(output) % kChunkBytes == 0;
}

float* kept_sums(const Context& context, const prefill::Product& product) {
  if (product.parts.is_whole()) return nullptr;
  expect_range(kWhere, "scratch bytes", prefill::kKeptBytes, INT64_MAX,
               context.scratch.bytes);
  return static_cast<float*>(context.scratch.data);
}

}

void prefill_linear(const Context& context, const glm_linear_args& args,
                    const collectives::PeerRows& peers) {
  const glm_matrix& matrix = *args.matrix;
  const bool is_fp8 = matrix.dtype == GLM_DTYPE_F8_E4M3;
  const void* tokens = is_fp8 ? args.input.codes : args.input.plain;
  prefill::Product product = prefill::describe(matrix);
  product.num_tokens = args.num_tokens;
  product.parts = stream::part_bands(
      {product.matrix.num_row_tiles, product.matrix.num_column_tiles});
  product.tile_tokens = prefill::tile_tokens_of(
      matrix.dtype, product,
      context.num_multiprocessors / prefill::kClusterSize);
  product.kept = kept_sums(context, product);
  product.token_scale = is_fp8 ? args.input.row_scale : nullptr;
  product.output = args.output;
  product.output_stride = matrix.rows;
  product.wide_stores = are_stores_wide(matrix, args.output);
  product.peers = peers;
  const prefill::TokenMaps maps =
      prefill::token_maps(kWhere, tokens, matrix.dtype, product, matrix.columns,
                          int64_t{matrix.columns} * dtype_bytes(matrix.dtype));
  if (is_fp8)
    prefill::product_fp8(context, maps, product);
  else
    prefill::product_bf16(context, maps, product);
}

}
