#pragma once

#include "native/kernels/prefill/product.hpp"

namespace glm::kernels::prefill {

constexpr int32_t kGroupTiles = 8;

struct Tile {
  int32_t expert;
  int32_t is_shared;
  int32_t row_pair;
  int32_t token_begin;
  int32_t num_tokens;
};

class Schedule {
 public:
  __device__ explicit Schedule(const Product& product)
      : product_(product),
        num_pairs_(row_pairs_of(0)),
        item_(static_cast<int32_t>(blockIdx.x) / kClusterSize) {
    if (product.expert_begin == nullptr)
      take(0, product.num_tokens);
    else
      take(product.expert_begin[0], product.expert_begin[1]);
  }

  __device__ bool next(Tile& tile) {
    while (item_ >= first_item_ + num_tiles_ * num_pairs_)
      if (!take_next_expert()) return false;
    const int32_t inside = item_ - first_item_;
    item_ += static_cast<int32_t>(gridDim.x) / kClusterSize;
    const int32_t group_items = kGroupTiles * num_pairs_;
    const int32_t group = inside / group_items;
    const int32_t first_tile = group * kGroupTiles;
    const int32_t group_tiles = min(kGroupTiles, num_tiles_ - first_tile);
    const int32_t rest = inside - group * group_items;
    tile.expert = expert_;
    tile.is_shared = expert_ == product_.shared_expert;
    tile.row_pair = rest / group_tiles;
    const int32_t begin =
        (first_tile + rest - tile.row_pair * group_tiles) * share_;
    tile.token_begin = token_begin_ + begin;
    tile.num_tokens = min(share_, num_tokens_ - begin);
    return true;
  }

 private:
  __device__ int32_t row_pairs_of(int32_t expert) const {
    return expert == product_.shared_expert ? product_.shared.num_row_pairs()
                                            : product_.matrix.num_row_pairs();
  }

  __device__ void take(int32_t begin, int32_t end) {
    token_begin_ = begin;
    num_tokens_ = end - begin;
    num_tiles_ =
        (num_tokens_ + product_.tile_tokens - 1) / product_.tile_tokens;
    const int32_t tiles = max(num_tiles_, 1);
    share_ = ((num_tokens_ + tiles - 1) / tiles + kWidthStep - 1) / kWidthStep *
             kWidthStep;
  }

  __device__ bool take_next_expert() {
    if (++expert_ >= product_.num_experts) return false;
    first_item_ += num_tiles_ * num_pairs_;
    num_pairs_ = row_pairs_of(expert_);
    take(token_begin_ + num_tokens_, product_.expert_begin[expert_ + 1]);
    return true;
  }

  const Product& product_;
  int32_t num_pairs_;
  int32_t item_;
  int32_t expert_ = 0;
  int32_t first_item_ = 0;
  int32_t token_begin_;
  int32_t num_tokens_;
  int32_t num_tiles_;
  int32_t share_;
};

}
