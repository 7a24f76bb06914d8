#pragma once

#include "native/kernels/prefill_attention/shared_memory.hpp"

namespace glm::kernels::prefill_attention_detail {

enum class Side { kKeys, kValues };

struct Copy {
  int32_t page;
  int32_t block;
  int32_t num_tokens;
};

template <typename Tile>
__device__ inline Copy look_up(const Parameters& parameters, const Item& item,
                               int32_t tile, int32_t tile_block, bool copies) {
  const int32_t block = tile * Tile::kKeyBlocks + tile_block;
  const int32_t remaining = item.context_length - block * kBlockTokens;
  if (tile < 0 || !copies || remaining <= 0) return {0, 0, 0};
  const int32_t page_blocks = parameters.cache.page_size / kBlockTokens;
  const int32_t entry = block / page_blocks;
  const int32_t* pages =
      parameters.segments.page_table +
      int64_t{item.table_row} * parameters.segments.page_table_stride;
  return {pages[entry], block - entry * page_blocks,
          min(remaining, kBlockTokens)};
}

}
