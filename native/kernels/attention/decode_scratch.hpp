#pragma once

#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels::decode {

constexpr int32_t kSegmentsOfLaunch = 512;
constexpr int32_t kShareSlack = 16;
constexpr int32_t kMostShares = 160;
constexpr int32_t kCounterStride = 8;
constexpr int64_t kMostSplitsOfPair = 128;
constexpr int64_t kListAlignment = 256;

constexpr int32_t padded_dims(int32_t dtype, int32_t head_dim) {
  return num_halves(dtype, head_dim) * kHalfBytes / dtype_bytes(dtype);
}

struct ScratchLayout {
  int64_t slots_of_share;
  int64_t weights;
  int64_t sums;
  int64_t bytes;
};

struct ScratchShape {
  int64_t num_segments;
  int64_t splits_of_context;
  int64_t num_heads;
  int64_t num_kv_heads;
  int32_t head_dim;
};

inline ScratchLayout layout_of_slots(const ScratchShape& shape,
                                     int64_t num_slots) {
  const int64_t rows = num_slots * (shape.num_heads / shape.num_kv_heads);
  const int64_t dims = padded_dims(GLM_DTYPE_F8_E4M3, shape.head_dim);
  ScratchLayout layout = {};
  layout.weights = int64_t{kMostShares} * kCounterStride * 4;
  layout.sums = layout.weights + round_up(rows * 8, 256);
  layout.bytes = layout.sums + rows * dims * 4;
  return layout;
}

inline int64_t slots_that_fit(const ScratchShape& shape, int64_t bytes) {
  const int64_t dims = padded_dims(GLM_DTYPE_F8_E4M3, shape.head_dim);
  const int64_t before = int64_t{kMostShares} * kCounterStride * 4 + 256;
  return (bytes - before) / (shape.num_heads / shape.num_kv_heads) /
         (8 + dims * 4);
}

inline int64_t most_splits(const ScratchShape& shape) {
  const int64_t splits =
      shape.num_segments * shape.num_kv_heads * shape.splits_of_context;
  return ceil_divide(splits * kShareSlack, kShareSlack - 1);
}

}
