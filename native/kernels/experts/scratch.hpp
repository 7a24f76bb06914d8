#pragma once

#include <cstdint>

#include "native/kernels/experts/control.hpp"
#include "native/kernels/layout.hpp"

namespace glm::kernels::mixture {

constexpr int32_t kLaunchTokens = 352;
constexpr int64_t kRegionAlignment = 256;

struct ScratchShape {
  int32_t hidden_size;
  int32_t intermediate_size;
  int32_t top_k;
};

inline int32_t tokens_per_launch(int32_t top_k) {
  int32_t most = kMaxAssignments / top_k;
  return most < kLaunchTokens ? most : kLaunchTokens;
}

struct ScratchLayout {
  int32_t hidden_stride;
  int32_t partial_stride;
  int64_t code_stride;
  int64_t input_stride;
  int64_t hidden;
  int64_t codes;
  int64_t code_scale;
  int64_t partial;
  int64_t padded_input;
  int64_t bytes;

  ScratchLayout(const ScratchShape& shape, int32_t dtype)
      : hidden_stride(static_cast<int32_t>(
            round_up(shape.intermediate_size, kChunkBytes / sizeof(float)))),
        partial_stride(static_cast<int32_t>(
            round_up(shape.hidden_size, kChunkBytes / sizeof(float)))),
        code_stride(row_bytes(shape.intermediate_size, dtype)),
        input_stride(row_bytes(shape.hidden_size, dtype)),
        bytes(sizeof(Control)) {
    int64_t num_tokens = tokens_per_launch(shape.top_k);
    int64_t num_assignments = num_tokens * shape.top_k;
    hidden = take(num_assignments * hidden_stride * sizeof(float));
    codes = take(num_assignments *
                 row_bytes(shape.intermediate_size, GLM_DTYPE_BF16));
    code_scale = take(num_assignments * sizeof(float));
    partial = take(num_assignments * partial_stride * sizeof(float));
    padded_input =
        take(num_tokens * row_bytes(shape.hidden_size, GLM_DTYPE_BF16));
    bytes = round_up(bytes, kRegionAlignment);
  }

 private:
  static int64_t row_bytes(int32_t width, int32_t dtype) {
    return round_up(int64_t{width} * dtype_bytes(dtype), kTileRowBytes);
  }
  int64_t take(int64_t size) {
    int64_t begin = round_up(bytes, kRegionAlignment);
    bytes = begin + size;
    return begin;
  }
};

}
