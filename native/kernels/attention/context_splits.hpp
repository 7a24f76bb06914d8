#ifndef GLM_KERNELS_ATTENTION_CONTEXT_SPLITS_HPP
#define GLM_KERNELS_ATTENTION_CONTEXT_SPLITS_HPP

#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels {

constexpr int32_t kPartBlocks = 2;

GLM_HOST_DEVICE constexpr int32_t split_blocks(int32_t head_dim) {
  return head_dim <= 128 ? 8 : 4;
}

GLM_HOST_DEVICE constexpr int32_t counted_blocks(int32_t context_length) {
  return context_length <= 0
             ? 1
             : static_cast<int32_t>(ceil_divide(context_length, kBlockTokens));
}

GLM_HOST_DEVICE constexpr int32_t num_splits(int32_t num_blocks,
                                             int32_t blocks_of_split) {
  return static_cast<int32_t>(ceil_divide(num_blocks, blocks_of_split));
}

GLM_HOST_DEVICE constexpr int32_t nearest_split(int32_t blocks,
                                                int32_t blocks_of_split) {
  return (blocks + blocks_of_split / 2) / blocks_of_split;
}

constexpr float exponent_factor(float scale) {
  return scale * 1.4426950408889634f;
}

static_assert(counted_blocks(0) == 1 && counted_blocks(16) == 1 &&
              counted_blocks(17) == 2);
static_assert(num_splits(1, 8) == 1 && num_splits(8, 8) == 1 &&
              num_splits(9, 8) == 2);

}

#endif
