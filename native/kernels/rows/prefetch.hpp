#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/ptx/bulk_copy.hpp"

namespace glm::kernels::rows {

template <bool aligned>
__device__ inline void prefetch_row(const __nv_bfloat16* rows, int32_t row,
                                    int64_t width) {
  if constexpr (!aligned) return;
  if (threadIdx.x != 0 || rows == nullptr) return;
  ptx::bulk_prefetch(rows + row * width,
                     static_cast<uint32_t>(width * sizeof(__nv_bfloat16)));
}

template <bool aligned>
__device__ inline void prefetch_next(const __nv_bfloat16* rows, int32_t row,
                                     int32_t num_rows, int64_t width) {
  const int32_t next = row + static_cast<int32_t>(gridDim.x);
  if (next < num_rows) prefetch_row<aligned>(rows, next, width);
}

}
