#pragma once

#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels {

constexpr int64_t gathered_row_bytes(int32_t columns) {
  return round_up(int64_t{columns} * dtype_bytes(GLM_DTYPE_BF16), kChunkBytes);
}

}
