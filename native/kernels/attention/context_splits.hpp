#pragma once

#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels {

constexpr int32_t kSplitBlocks = 16;
constexpr int32_t kSplitTokens = kSplitBlocks * kBlockTokens;

GLM_HOST_DEVICE constexpr int32_t counted_blocks(int32_t context_length) {
  return context_length <= 0
             ? 1
             : static_cast<int32_t>(ceil_divide(context_length, kBlockTokens));
}

GLM_HOST_DEVICE constexpr int32_t num_splits(int32_t num_blocks) {
  return static_cast<int32_t>(ceil_divide(num_blocks, kSplitBlocks));
}

GLM_HOST_DEVICE constexpr int32_t nearest_split(int32_t blocks) {
  return (blocks + kSplitBlocks / 2) / kSplitBlocks;
}

static_assert(counted_blocks(0) == 1 && counted_blocks(16) == 1 &&
              counted_blocks(17) == 2);
static_assert(num_splits(1) == 1 && num_splits(16) == 1 && num_splits(17) == 2);

}
