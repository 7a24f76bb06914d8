#include <cmath>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "device.hpp"
#include "operations.hpp"

namespace glm::adapter {
namespace {

constexpr char kWhere[] = "place_random";
constexpr float kCodeDeviation = 1.1587810f;

void fill(float* memory, int64_t count, float value) {
  const std::vector<float> values(static_cast<size_t>(count), value);
  if (memory != nullptr)
    platform::copy(kWhere, memory, values.data(),
                   count * int64_t{sizeof(float)});
}

}

void place_random(glm_device& device, const glm_place_random_args& args) {
  expect_pointer(kWhere, "matrix", args.matrix);
  const glm_matrix& matrix = *args.matrix;
  expect_matrix(kWhere, "matrix", &matrix, matrix.role);
  const float deviation = args.standard_deviation;
  if (!(deviation > 0) || !std::isfinite(deviation))
    reject(kWhere, "standard_deviation", "a finite number above 0",
           std::to_string(deviation));
  fill(matrix.bias, matrix.rows, 0);
  fill(matrix.row_scale, matrix.rows, deviation / kCodeDeviation);
  futhark_context* context = device.context;
  const bool is_table = matrix.role == GLM_MATRIX_TABLE;
  const int64_t rows = matrix.rows;
  const int64_t columns = matrix.columns;
  const int64_t bytes = matrix_bytes(matrix);
  if (matrix.dtype == GLM_DTYPE_F8_E4M3) {
    Array<uint8_t, 1> codes(context);
    check_kernel(context, kWhere,
                 futhark_entry_random_fp8(context, codes.slot(), args.seed,
                                          is_table, rows, columns));
    codes.copy_to(kWhere, matrix.data, bytes);
  } else if (matrix.dtype == GLM_DTYPE_BF16) {
    Array<uint16_t, 1> halves(context);
    check_kernel(context, kWhere,
                 futhark_entry_random_bf16(context, halves.slot(), args.seed,
                                           deviation, is_table, rows, columns));
    halves.copy_to(kWhere, matrix.data, bytes / 2);
  } else {
    Array<float, 1> values(context);
    check_kernel(context, kWhere,
                 futhark_entry_random_f32(context, values.slot(), args.seed,
                                          deviation, is_table, rows, columns));
    values.copy_to(kWhere, matrix.data, bytes / 4);
  }
  futhark_context_clear_caches(context);
}

}
