#include "arrays.hpp"
#include "device.hpp"
#include "host_view.hpp"
#include "operations.hpp"

namespace glm::adapter {
namespace {

void expect_activation(const char* where, const glm_matrix& matrix,
                       const glm_activation& input) {
  if (matrix.dtype == GLM_DTYPE_F8_E4M3) {
    expect_pointer(where, "codes for an FP8 matrix", input.codes);
    expect_pointer(where, "row_scale for an FP8 matrix", input.row_scale);
  } else {
    expect_pointer(where, "plain for an unquantized matrix", input.plain);
  }
}

}

void linear_result(glm_device& device, const char* where, int64_t tokens,
                   const glm_matrix& matrix, const glm_activation& input,
                   futhark_f32_2d** result) {
  futhark_context* context = device.context;
  const int64_t panels = num_panels(matrix.rows);
  const int64_t panel_size = matrix.columns * kPanelColumns;
  const int64_t num_biases = matrix.bias == nullptr ? 0 : matrix.rows;
  const Array<float, 1> bias(context, matrix.bias, num_biases);
  const Array<float, 2> plain(context, static_cast<const float*>(input.plain),
                              tokens, matrix.columns);
  int code = 0;
  if (matrix.dtype == GLM_DTYPE_F8_E4M3) {
    const Array<uint8_t, 2> codes(context, input.codes, tokens, matrix.columns);
    const Array<float, 1> row_scale(context, input.row_scale, tokens);
    const Array<float, 1> scale(context, matrix.row_scale, matrix.rows);
    const Array<uint8_t, 2> weights(context, static_cast<uint8_t*>(matrix.data),
                                    panels, panel_size);
    code = futhark_entry_linear_fp8(context, result, codes, row_scale, weights,
                                    scale, bias);
  } else if (matrix.dtype == GLM_DTYPE_BF16) {
    const Array<uint16_t, 2> weights(
        context, static_cast<uint16_t*>(matrix.data), panels, panel_size);
    code = futhark_entry_linear_bf16(context, result, matrix.rows, plain,
                                     weights, bias);
  } else {
    const Array<float, 2> weights(context, static_cast<float*>(matrix.data),
                                  panels, panel_size);
    code = futhark_entry_linear_f32(context, result, matrix.rows, plain,
                                    weights, bias);
  }
  check_kernel(context, where, code);
}

void linear(glm_device& device, const glm_linear_args& args) {
  const char* where = "linear";
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(where, "part_of_sum", GLM_NO_PART_OF_SUM,
               GLM_PART_OF_SCATTERED_SUM, args.part_of_sum);
  expect_matrix(where, "matrix", args.matrix, GLM_MATRIX_LINEAR);
  if (args.num_tokens == 0) return;
  expect_activation(where, *args.matrix, args.input);
  expect_pointer(where, "output", args.output);
  Array<float, 2> result(device.context);
  linear_result(device, where, args.num_tokens, *args.matrix, args.input,
                result.slot());
  result.copy_to(where, args.output,
                 args.num_tokens * int64_t{args.matrix->rows});
}

namespace {

void select_rows(glm_device& device, const char* where,
                 const glm_logits_args& args, futhark_f32_2d** selected) {
  expect_indices(where, "row_index", 0, INT32_MAX, args.row_index,
                 args.num_rows);
  const int64_t num_input_rows =
      most_rows_read_by(args.row_index, args.num_rows);
  futhark_context* context = device.context;
  const Array<int32_t, 1> index(context, args.row_index, args.num_rows);
  const Array<float, 2> input(context, static_cast<const float*>(args.input),
                              num_input_rows, args.head->columns);
  check_kernel(context, where,
               futhark_entry_select_rows(context, selected, index, input));
}

}

void logits(glm_device& device, const glm_logits_args& args) {
  const char* where = "logits";
  expect_range(where, "num_rows", 0, INT32_MAX, args.num_rows);
  expect_matrix(where, "head", args.head, GLM_MATRIX_LINEAR);
  expect_plain(where, "a head", *args.head);
  if (args.num_rows == 0) return;
  expect_pointer(where, "input", args.input);
  expect_pointer(where, "output", args.output);
  Array<float, 2> selected(device.context);
  const void* rows = args.input;
  if (args.row_index != nullptr) {
    select_rows(device, where, args, selected.slot());
    rows = selected.data();
  }
  Array<float, 2> result(device.context);
  linear_result(device, where, args.num_rows, *args.head,
                {rows, nullptr, nullptr}, result.slot());
  result.copy_to(where, args.output, args.num_rows * int64_t{args.head->rows});
}

}
