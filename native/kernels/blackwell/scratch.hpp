#pragma once

#include <algorithm>
#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels::blackwell {

constexpr int64_t kListAlignment = 128;
constexpr int64_t kNumLists = 10;
constexpr int64_t kWidestElement = 16;
constexpr int64_t kWorkspaceBytes = 192 * 1024;
constexpr int64_t kRegionAlignment = 256;
constexpr int64_t kFloatBytes = 4;
constexpr int64_t kBf16Bytes = 2;
constexpr int64_t kBorderBytes = kTileBytes;

constexpr int64_t row_pitch(int32_t dtype, int32_t columns) {
  return round_up(int64_t{columns} * dtype_bytes(dtype), kChunkBytes);
}

inline int64_t list_bytes(int64_t num_groups) {
  return round_up(num_groups * kWidestElement, kListAlignment);
}

inline int64_t product_scratch_bytes(int64_t num_groups) {
  return kNumLists * list_bytes(num_groups) + kWorkspaceBytes;
}

inline int64_t router_scratch_bytes(int32_t most_experts, int32_t hidden_size) {
  return packed_bytes(GLM_DTYPE_BF16, GLM_MATRIX_LINEAR, most_experts,
                      hidden_size) +
         kBorderBytes;
}

struct ExpertShape {
  int32_t dtype;
  int32_t top_k;
  int32_t num_experts;
  int32_t hidden_size;
  int32_t width;
};

struct ExpertLayout {
  int64_t input_bytes;
  int64_t inner_bytes;
  int64_t gate_up_pitch;
  int64_t product_pitch;
  int64_t begin;
  int64_t position;
  int64_t input_scale;
  int64_t hidden_scale;
  int64_t inner;
  int64_t gathered;
  int64_t gate_up;
  int64_t products;
  int64_t bytes;

  ExpertLayout(const ExpertShape& shape, int64_t num_rows)
      : input_bytes(row_pitch(shape.dtype, shape.hidden_size)),
        inner_bytes(row_pitch(shape.dtype, shape.width)),
        gate_up_pitch(round_up(2 * int64_t{shape.width}, kPairRows)),
        product_pitch(round_up(shape.hidden_size, kPairRows)),
        bytes(product_scratch_bytes(shape.num_experts)) {
    const int64_t choices = num_rows * shape.top_k;
    begin = take((int64_t{shape.num_experts} + 1) * kFloatBytes);
    position = take(choices * kFloatBytes);
    input_scale = take(choices * kFloatBytes);
    hidden_scale = take(choices * kFloatBytes);
    inner = take(choices * inner_bytes);
    gathered = take(choices * input_bytes);
    gate_up = take(choices * gate_up_pitch * kFloatBytes);
    products = gathered;
    bytes = std::max(bytes, products + choices * product_pitch * kBf16Bytes);
  }

 private:
  int64_t take(int64_t size) {
    const int64_t offset = round_up(bytes, kRegionAlignment);
    bytes = offset + size;
    return offset;
  }
};

}
