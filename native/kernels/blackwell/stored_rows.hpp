#pragma once

#include <cstdint>

#include "native/kernels/blackwell/scratch.hpp"
#include "native/kernels/context.hpp"
#include "native/kernels/layout.hpp"

namespace glm::kernels::blackwell {

constexpr int32_t kCapability = 10;

inline bool multiplies(const Context& context, int32_t dtype) {
  return context.capability == kCapability && dtype != GLM_DTYPE_F32;
}

inline bool stores_rows(const Context& context, const glm_matrix& matrix) {
  return matrix.role != GLM_MATRIX_TABLE && multiplies(context, matrix.dtype);
}

inline glm_matrix as_table(const glm_matrix& matrix) {
  glm_matrix table = matrix;
  table.role = GLM_MATRIX_TABLE;
  table.columns = static_cast<int32_t>(row_pitch(matrix.dtype, matrix.columns) /
                                       dtype_bytes(matrix.dtype));
  return table;
}

void clear_row_ends(const Context& context, const glm_matrix& matrix);

}
