#pragma once

#include <cstdint>

#include "native/kernels/products/ring_cursor.hpp"
#include "native/kernels/stream/product_stage.hpp"
#include "native/kernels/stream/tile_product.hpp"
#include "native/ptx/mbarrier.hpp"

namespace glm::kernels::stream {

template <int32_t dtype, typename Layout>
class ProductMultiplier {
 public:
  static constexpr int32_t kColumns = Layout::kColumns;
  using Total = float[kColumns / 2];

  __device__ ProductMultiplier(const ProductShape& shape,
                               const ProductShared& shared,
                               const ProductPosition& position, int32_t warp,
                               int32_t lane)
      : shape_(shape),
        position_(position),
        weights_full_(ptx::shared_address(shared.barriers->weights)),
        tokens_full_(ptx::shared_address(shared.barriers->tokens)),
        empty_(ptx::shared_address(shared.barriers->empty)),
        warp_in_group_(warp % kWarpgroupWarps),
        group_(warp / kWarpgroupWarps),
        is_elected_(warp_in_group_ == 0 && lane == 0),
        weights_(ptx::shared_address(shared.data) +
                 (Layout::kIsBroad ? 0 : group_ * kWarpgroupBytes)),
        tokens_(ptx::shared_address(shared.tokens) +
                first_token() * kTileRowBytes) {}

  __device__ int32_t first_row() const {
    return warp_in_group_ * kFragmentRows +
           (Layout::kIsBroad ? 0 : group_ * kWarpgroupRows);
  }

  __device__ int32_t first_token() const {
    return Layout::kIsBroad ? group_ * kColumns : 0;
  }

  __device__ void multiply_unit(Total& total) {
    if constexpr (dtype != GLM_DTYPE_F8_E4M3) {
      multiply_in_place(total);
    } else if constexpr (Layout::kBlocks > 1) {
      multiply_blocks(total);
    } else {
      if constexpr (kColumns <= kMostBatchedColumns) {
        if (is_short()) return multiply_short(total);
      }
      multiply_promoted(total);
    }
  }

 private:
  static constexpr int32_t kBlock = Layout::kBlock;
  static constexpr int32_t kMostEagerColumns = 16;
  static constexpr int32_t kMostBatchedColumns = 32;
  static constexpr int32_t kBatchTiles = kColumns <= kMostEagerColumns ? 4 : 3;
  using Block = float[kBlock / 2];

  __device__ void await_stage() const {
    uint32_t offset = ring_.stage * kBarrierBytes;
    ptx::barrier_wait(weights_full_ + offset, ring_.parity);
    ptx::barrier_wait(tokens_full_ + offset, ring_.parity);
  }

  __device__ uint64_t weights() const {
    return ptx::swizzled_descriptor(weights_ +
                                    ring_.stage * Layout::kUnitBytes);
  }

  __device__ uint64_t tokens(int32_t block) const {
    return ptx::swizzled_descriptor(tokens_ +
                                    ring_.stage * Layout::kTokenBytes +
                                    block * (kBlock * kTileRowBytes));
  }

  __device__ void begin_tile(Total& part) {
    await_stage();
    begin_part<kColumns>(part, weights(), tokens(0));
    ring_.advance(shape_.num_stages);
  }

  template <int32_t pending>
  __device__ void end_tile(Total& total, Total& part,
                           products::RingCursor& done) {
    ptx::wgmma_wait<pending>();
    ptx::hold(part);
    release_stage(done);
#pragma unroll
    for (int32_t i = 0; i < kColumns / 2; ++i) total[i] += part[i];
  }

  __device__ bool is_short() const {
    return position_.num_tiles <=
           (kColumns <= kMostEagerColumns ? kMaxStages : shape_.num_stages);
  }

  __device__ void multiply_short(Total& total) {
    int32_t left = position_.num_tiles;
#pragma unroll 1
    for (; left >= kBatchTiles; left -= kBatchTiles) {
      multiply_batch<kBatchTiles>(total);
    }
    if (left & 2) multiply_batch<2>(total);
    if (left & 1) multiply_batch<1>(total);
  }

  template <int32_t count>
  __device__ void multiply_batch(Total& total) {
    products::RingCursor done = ring_;
    Total parts[count];
    uint64_t weights_of[count];
    uint64_t tokens_of[count];
#pragma unroll
    for (int32_t i = 0; i < count; ++i) {
      await_stage();
      weights_of[i] = weights();
      tokens_of[i] = tokens(0);
      ring_.advance(shape_.num_stages);
      ptx::hold(parts[i]);
    }
    multiply_interleaved<kColumns, count>(parts, weights_of, tokens_of);
#pragma unroll
    for (int32_t i = 0; i < count; ++i) {
      ptx::hold(parts[i]);
      release_stage(done);
#pragma unroll
      for (int32_t j = 0; j < kColumns / 2; ++j) total[j] += parts[i][j];
    }
  }

  __device__ void multiply_promoted(Total& total) {
    products::RingCursor done = ring_;
    Total first;
    Total second;
    int32_t tile = 1;
    begin_tile(first);
#pragma unroll 1
    for (; tile + 1 < position_.num_tiles; tile += 2) {
      begin_tile(second);
      end_tile<1>(total, first, done);
      begin_tile(first);
      end_tile<1>(total, second, done);
    }
    if (tile < position_.num_tiles) {
      begin_tile(second);
      end_tile<1>(total, first, done);
      end_tile<0>(total, second, done);
    } else {
      end_tile<0>(total, first, done);
    }
  }

  __device__ void begin_block(Block& part, int32_t block) const {
    begin_part<kBlock>(part, weights(), tokens(block));
  }

  template <int32_t block>
  __device__ void end_block(Total& total, Block& part) {
    constexpr bool kIsLast = block == Layout::kBlocks - 1;
    ptx::wgmma_wait<Layout::kPairsBlocks && !kIsLast ? 1 : 0>();
    ptx::hold(part);
    if constexpr (kIsLast) release_stage(ring_);
#pragma unroll
    for (int32_t i = 0; i < kBlock / 2; ++i) {
      total[block * (kBlock / 2) + i] += part[i];
    }
  }

  template <int32_t block>
  __device__ void multiply_from(Total& total, Block& part, Block& other) {
    if constexpr (block == Layout::kBlocks - 1) {
      end_block<block>(total, part);
    } else if constexpr (Layout::kPairsBlocks) {
      begin_block(other, block + 1);
      end_block<block>(total, part);
      multiply_from<block + 1>(total, other, part);
    } else {
      end_block<block>(total, part);
      begin_block(part, block + 1);
      multiply_from<block + 1>(total, part, other);
    }
  }

  __device__ void multiply_blocks(Total& total) {
#pragma unroll 1
    for (int32_t tile = 0; tile < position_.num_tiles; ++tile) {
      Block part;
      Block other;
      await_stage();
      begin_block(part, 0);
      multiply_from<0>(total, part, other);
    }
  }

  __device__ void multiply_in_place(Total& total) {
    products::RingCursor done = ring_;
    ptx::hold(total);
#pragma unroll 1
    for (int32_t tile = 0; tile < position_.num_tiles; ++tile) {
      await_stage();
      ptx::wgmma_fence();
      multiply_steps<dtype, kColumns>(total, weights(), tokens(0), 1);
      ptx::wgmma_commit();
      ring_.advance(shape_.num_stages);
      if (tile == 0) continue;
      ptx::wgmma_wait<1>();
      release_stage(done);
    }
    ptx::wgmma_wait<0>();
    ptx::hold(total);
    release_stage(done);
  }

  __device__ void release_stage(products::RingCursor& done) {
    uint32_t empty = empty_ + done.stage * kBarrierBytes;
    done.advance(shape_.num_stages);
    if (is_elected_) ptx::barrier_arrive(empty);
  }

  const ProductShape& shape_;
  const ProductPosition& position_;
  uint32_t weights_full_;
  uint32_t tokens_full_;
  uint32_t empty_;
  int32_t warp_in_group_;
  int32_t group_;
  bool is_elected_;
  uint32_t weights_;
  uint32_t tokens_;
  products::RingCursor ring_;
};

}
