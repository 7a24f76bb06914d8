#include "native/kernels/blackwell/operations.hpp"
#include "native/kernels/blackwell/product.hpp"

namespace glm::kernels::blackwell {

void linear(const Context& context, const glm_linear_args& args) {
  if (args.num_tokens == 0) return;
  const glm_matrix& matrix = *args.matrix;
  const bool is_fp8 = matrix.dtype == GLM_DTYPE_F8_E4M3;
  Product product = describe(matrix);
  product.tokens =
      is_fp8 ? args.input.codes : static_cast<const uint8_t*>(args.input.plain);
  product.token_scale = is_fp8 ? args.input.row_scale : nullptr;
  product.num_tokens = args.num_tokens;
  product.output = args.output;
  product.output_pitch = matrix.rows;
  multiply(context, product, context.scratch);
}

}
