#include "native/kernels/blackwell/stored_rows.hpp"

#include "native/base/cuda.hpp"

namespace glm::kernels::blackwell {

void clear_row_ends(const Context& context, const glm_matrix& matrix) {
  const int64_t bytes = int64_t{matrix.columns} * dtype_bytes(matrix.dtype);
  const int64_t pitch = row_pitch(matrix.dtype, matrix.columns);
  if (pitch == bytes) return;
  check(cudaMemset2DAsync(static_cast<uint8_t*>(matrix.data) + bytes,
                          static_cast<size_t>(pitch), 0,
                          static_cast<size_t>(pitch - bytes),
                          static_cast<size_t>(matrix.rows), context.stream),
        "blackwell: row padding");
}

}
