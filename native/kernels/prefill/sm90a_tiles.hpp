#ifndef GLM_KERNELS_PREFILL_SM90A_TILES_HPP
#define GLM_KERNELS_PREFILL_SM90A_TILES_HPP

#include "native/kernels/prefill/product.hpp"

namespace glm::kernels::prefill {

constexpr int32_t kGroupTiles = 8;

struct Tile {
  int32_t expert;
  int32_t row_pair;
  int32_t token_begin;
  int32_t num_tokens;
};

struct ExpertTable {
  int32_t token_begin[kMaxExperts + 1];
  int32_t item_begin[kMaxExperts + 1];
};

__device__ inline int32_t num_token_tiles(int32_t num_tokens) {
  return static_cast<int32_t>(ceil_divide(num_tokens, kTileTokens));
}

__device__ inline void cut_tokens(Tile& tile, int32_t token_begin,
                                  int32_t num_tokens, int32_t index,
                                  int32_t num_tiles) {
  const int32_t share = static_cast<int32_t>(
      round_up(ceil_divide(num_tokens, num_tiles), kSliceTokens));
  tile.token_begin = token_begin + index * share;
  tile.num_tokens = min(share, num_tokens - index * share);
}

class Schedule {
 public:
  __device__ Schedule(const Product& product, const ExpertTable* table)
      : product_(product),
        table_(table),
        num_pairs_((product.num_row_tiles + 1) / 2),
        num_tiles_(num_token_tiles(product.num_tokens)) {}

  __device__ bool find(int32_t item, Tile& tile) {
    return product_.expert_begin == nullptr ? find_dense(item, tile)
                                            : find_grouped(item, tile);
  }

 private:
  __device__ bool find_dense(int32_t item, Tile& tile) const {
    if (item >= num_pairs_ * num_tiles_) return false;
    const int32_t group_items = kGroupTiles * num_pairs_;
    const int32_t first = item / group_items * kGroupTiles;
    const int32_t group_tiles = min(kGroupTiles, num_tiles_ - first);
    const int32_t inside = item % group_items;
    tile.expert = 0;
    tile.row_pair = inside / group_tiles;
    cut_tokens(tile, 0, product_.num_tokens, first + inside % group_tiles,
               num_tiles_);
    return true;
  }

  __device__ bool find_grouped(int32_t item, Tile& tile) {
    while (expert_ < product_.num_experts &&
           item >= table_->item_begin[expert_ + 1])
      ++expert_;
    if (expert_ == product_.num_experts) return false;
    const int32_t begin = table_->token_begin[expert_];
    const int32_t count = table_->token_begin[expert_ + 1] - begin;
    const int32_t tiles = num_token_tiles(count);
    const int32_t inside = item - table_->item_begin[expert_];
    tile.expert = expert_;
    tile.row_pair = inside / tiles;
    cut_tokens(tile, begin, count, inside % tiles, tiles);
    return true;
  }

  const Product& product_;
  const ExpertTable* table_;
  int32_t num_pairs_;
  int32_t num_tiles_;
  int32_t expert_ = 0;
};

__device__ inline void fill_table(const Product& product, ExpertTable& table) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t pairs = (product.num_row_tiles + 1) / 2;
  int32_t carried = 0;
  for (int32_t first = 0; first < product.num_experts; first += 32) {
    const int32_t expert = first + lane;
    const bool present = expert < product.num_experts;
    const int32_t begin = present ? product.expert_begin[expert] : 0;
    const int32_t end = present ? product.expert_begin[expert + 1] : 0;
    int32_t items = num_token_tiles(end - begin) * pairs;
    for (int32_t step = 1; step < 32; step *= 2) {
      const int32_t below = __shfl_up_sync(~0u, items, step);
      if (lane >= step) items += below;
    }
    if (present) {
      table.token_begin[expert] = begin;
      table.token_begin[expert + 1] = end;
      table.item_begin[expert + 1] = carried + items;
    }
    carried += __shfl_sync(~0u, items, 31);
  }
  if (lane == 0) table.item_begin[0] = 0;
}

}

#endif
