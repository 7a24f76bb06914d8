#pragma once

#include <algorithm>
#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels::prefill {

constexpr int32_t kTileTokens = 256;
constexpr int32_t kNumConsumers = 256;
constexpr int32_t kMostKeepingBlocks = 132;
constexpr int64_t kKeptBlockBytes =
    int64_t{kTileTokens} / 2 * kNumConsumers * sizeof(float);
constexpr int64_t kKeptBytes = kMostKeepingBlocks * kKeptBlockBytes;

constexpr int64_t kRegionAlignment = 256;

struct ExpertLayout {
  int64_t input_stride = 0;
  int64_t hidden_stride = 0;
  int64_t product_stride = 0;
  int64_t begin = 0;
  int64_t position = 0;
  int64_t input_scale = 0;
  int64_t hidden_scale = 0;
  int64_t inner = 0;
  int64_t gathered = 0;
  int64_t hidden = 0;
  int64_t products = 0;
  int64_t bytes = 0;
};

class Regions {
 public:
  int64_t add(int64_t bytes) {
    const int64_t offset = bytes_;
    bytes_ += round_up(bytes, kRegionAlignment);
    return offset;
  }
  void rewind(int64_t offset) { bytes_ = offset; }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

inline ExpertLayout expert_layout(int32_t dtype, int64_t num_choices,
                                  int64_t num_experts, int64_t hidden_size,
                                  int64_t width) {
  ExpertLayout layout;
  Regions regions;
  const int64_t element = dtype_bytes(dtype);
  layout.input_stride = round_up(hidden_size * element, kChunkBytes);
  layout.hidden_stride = round_up(width, kChunkBytes);
  layout.product_stride = round_up(hidden_size, kPairRows);
  layout.begin = regions.add((num_experts + 1) * 4);
  layout.position = regions.add(num_choices * 4);
  layout.input_scale = regions.add(num_choices * 4);
  layout.hidden_scale = regions.add(num_choices * 4);
  layout.inner = regions.add(num_choices * layout.hidden_stride * element);
  const int64_t shared = regions.bytes();
  layout.gathered = regions.add(num_choices * layout.input_stride);
  layout.hidden = regions.add(num_choices * layout.hidden_stride * 4);
  const int64_t first_end = regions.bytes();
  regions.rewind(shared);
  layout.products = regions.add(num_choices * layout.product_stride * 2);
  layout.bytes = std::max(first_end, regions.bytes());
  return layout;
}

}
