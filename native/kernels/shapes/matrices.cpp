#include <string>

#include "native/base/failure.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::kernels {
namespace {

constexpr char kLinear[] = "linear";
constexpr char kLogits[] = "logits";

void expect_linear_matrix(const glm_matrix& matrix) {
  expect_product_dtype(kLinear, "matrix.dtype", GLM_DTYPE_F8_E4M3,
                       matrix.dtype);
  expect_range(kLinear, "matrix.role", GLM_MATRIX_LINEAR, GLM_MATRIX_GATE_UP,
               matrix.role);
  expect_range(kLinear, "matrix.rows", 1, INT32_MAX / 2, matrix.rows);
  expect_range(kLinear, "matrix.columns", 1, INT32_MAX / 8, matrix.columns);
  if (matrix.role == GLM_MATRIX_GATE_UP) {
    expect_equal(kLinear, "matrix.rows % 2", 0, matrix.rows % 2);
  }
}

void expect_head(const glm_matrix& head) {
  if (head.dtype == GLM_DTYPE_F8_E4M3) {
    throw Failure(GLM_NOT_SUPPORTED,
                  "logits: head.dtype: expected BF16, got F8_E4M3");
  }
  expect_product_dtype(kLogits, "head.dtype", GLM_DTYPE_BF16, head.dtype);
  expect_equal(kLogits, "head.role", GLM_MATRIX_LINEAR, head.role);
  expect_range(kLogits, "head.rows", 1, INT32_MAX / 2, head.rows);
  expect_range(kLogits, "head.columns", 1, INT32_MAX / 8, head.columns);
}

}

void expect_matrix_shape(const char* where, const glm_matrix& matrix) {
  expect_range(where, "matrix rows", 1, INT32_MAX, matrix.rows);
  expect_range(where, "matrix columns", 1, INT32_MAX, matrix.columns);
  expect_range(where, "role", GLM_MATRIX_LINEAR, GLM_MATRIX_TABLE, matrix.role);
  expect_range(where, "dtype", GLM_DTYPE_F32, GLM_DTYPE_F8_E4M3, matrix.dtype);
  if (matrix.role == GLM_MATRIX_GATE_UP)
    expect_equal(where, "gate-and-up matrix rows modulo 2", 0, matrix.rows % 2);
}

void expect_product_dtype(const char* where, const char* what, int32_t last,
                          int32_t dtype) {
  if (dtype == GLM_DTYPE_F32)
    throw Failure(
        GLM_NOT_SUPPORTED,
        std::string(where) + ": " + what + ": expected " +
            (last == GLM_DTYPE_BF16 ? "BF16" : "BF16 or FP8") +
            ", got F32, which GPUs do not run: use the CPU (--device cpu), or "
            "convert the checkpoint to BF16, for instance with "
            "save_pretrained of Hugging Face Transformers");
  expect_range(where, what, GLM_DTYPE_BF16, last, dtype);
}

void expect_linear_shapes(const glm_linear_args& args) {
  expect_range(kLinear, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(kLinear, "part_of_sum", GLM_NO_PART_OF_SUM,
               GLM_PART_OF_SCATTERED_SUM, args.part_of_sum);
  expect_pointer(kLinear, "matrix", args.matrix);
  expect_linear_matrix(*args.matrix);
}

void expect_logits_shapes(const glm_logits_args& args) {
  expect_range(kLogits, "num_rows", 0, INT32_MAX, args.num_rows);
  expect_pointer(kLogits, "head", args.head);
  expect_head(*args.head);
}

}
