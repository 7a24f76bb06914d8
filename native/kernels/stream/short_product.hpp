#pragma once

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/part_finish.hpp"
#include "native/kernels/stream/product_stage.hpp"
#include "native/kernels/stream/tile_product.hpp"
#include "native/ptx/async_copy.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::stream {

constexpr int32_t kMostShortTiles = 5;
constexpr int32_t kFewShortTiles = 2;
constexpr int32_t kShortResidents = 2;
constexpr int32_t kRowChunks = kTileRowBytes / kChunkBytes;

struct ShortBarriers {
  uint64_t full[kMostShortTiles];
  PartBarriers parts;
};

struct ShortShared {
  uint8_t* weights;
  uint8_t* tokens;
  ShortBarriers* barriers;
  float* token_scales;
};

template <typename Layout, int32_t most_tiles>
class TokenChunks {
 public:
  __device__ TokenChunks(const TokenRows& tokens,
                         const ProductPosition& position, uint32_t shared,
                         int32_t thread)
      : num_tiles_(position.num_tiles) {
    int32_t place = thread % kPlaces;
    tile_ = kTileStep == 1 ? 0 : thread / kPlaces;
    int32_t within = place % kRowChunks * kChunkBytes;
    int32_t first = (position.first_tile + tile_) * kTileRowBytes + within;
    int32_t row = place / kRowChunks;
    shared_ = shared + tile_ * Layout::kTokenBytes + swizzle(row, within);
    token_ = position.first_token + row;
    bytes_left_ = tokens.row_bytes - first;
    source_ = tokens.data + int64_t{token_} * tokens.row_bytes + first;
    asm volatile("" : "+r"(shared_), "+l"(source_));
  }

  __device__ void copy(const TokenRows& tokens) const {
#pragma unroll
    for (int32_t row = 0; row < Layout::kTokens; row += kPassRows) {
      copy_row(tokens, row);
    }
  }

 private:
  static constexpr int32_t kTileChunks = Layout::kTokens * kRowChunks;
  static constexpr int32_t kPlaces =
      kTileChunks < kMultiplierThreads ? kTileChunks : kMultiplierThreads;
  static constexpr int32_t kTileStep = kMultiplierThreads / kPlaces;
  static constexpr int32_t kPassRows = kPlaces / kRowChunks;

  __device__ void copy_row(const TokenRows& tokens, int32_t row) const {
    bool has_row = token_ + row < tokens.num_rows;
    const uint8_t* source = source_ + int64_t{row} * tokens.row_bytes;
#pragma unroll
    for (int32_t tile = 0; tile < most_tiles; tile += kTileStep) {
      if (tile_ + tile >= num_tiles_) break;
      bool is_present = has_row && tile * kTileRowBytes < bytes_left_;
      ptx::async_copy(
          shared_ + row * kTileRowBytes + tile * Layout::kTokenBytes,
          is_present ? source + tile * kTileRowBytes : tokens.data,
          is_present ? kChunkBytes : 0);
    }
  }

  int32_t num_tiles_;
  int32_t tile_;
  int32_t token_;
  int32_t bytes_left_;
  uint32_t shared_;
  const uint8_t* source_;
};

template <typename Layout, int32_t most_tiles, typename Output>
class ShortProduct {
 public:
  __device__ ShortProduct(const ProductArgs& args, const ProductShape& shape,
                          const ShortShared& shared, int32_t thread)
      : args_(args),
        shape_(shape),
        shared_(shared),
        position_(shape, Layout::kTokens),
        thread_(thread),
        lane_(thread % kWarpThreads),
        warp_(__shfl_sync(~0u, thread / kWarpThreads, 0)) {}

  __device__ void begin() const {
    if (warp_ != 0) return;
    if (has(lane_)) ptx::barrier_init(shared_.barriers->full + lane_, 1);
    ptx::barrier_init_fence();
    __syncwarp();
    if (has(lane_)) begin_weights();
    __syncwarp();
    if (is_cluster() && lane_ < kPartWarps) exchange_of(lane_).init();
    ptx::barrier_init_fence();
  }

  __device__ void multiply() const {
    FragmentPlace place = place_of();
    FragmentTerms terms = load_terms(args_, place);
    TokenChunks<Layout, most_tiles> chunks(
        args_.tokens, position_, ptx::shared_address(shared_.tokens), thread_);
    if (is_cluster()) ptx::cluster_wait();
    ptx::wait_for_predecessor();
    ptx::let_successor_start();
    chunks.copy(args_.tokens);
    load_token_scale();
    await_tiles();
    Total total;
    multiply_tiles(total);
    Exchange exchange = exchange_of(warp_);
    if (is_cluster()) {
      exchange.send(total, 0);
      exchange.await(0);
    }
    Finish finish(args_, shape_, shared_.token_scales, position_.first_token);
    finish.finish(total, exchange, place, terms);
  }

  __device__ bool is_cluster() const { return shape_.split > 1; }

 private:
  static constexpr int32_t kColumns = Layout::kColumns;
  using Finish = PartFinish<Layout, Output>;
  using Exchange = typename Finish::Exchange;
  using Total = typename Finish::Total;

  __device__ void begin_weights() const {
    uint64_t* full = shared_.barriers->full + lane_;
    ptx::barrier_expect(full, Layout::kUnitBytes);
    ptx::bulk_copy(shared_.weights + lane_ * Layout::kUnitBytes,
                   source() + int64_t{lane_} * kTileBytes, Layout::kUnitBytes,
                   full, ptx::kEvictFirst);
  }

  __device__ const uint8_t* source() const {
    int32_t unit = position_.first_unit;
    int64_t tile = int64_t{unit / 2} * args_.num_column_tiles;
    return args_.tiles + (tile + position_.first_tile) * kTileBytes +
           unit % 2 * kWarpgroupBytes;
  }

  __device__ bool has(int32_t tile) const { return tile < position_.num_tiles; }

  __device__ int32_t group() const { return warp_ / kWarpgroupWarps; }

  __device__ FragmentPlace place_of() const {
    int32_t row = warp_ % kWarpgroupWarps * kFragmentRows;
    return {position_.first_unit * kWarpgroupRows + row,
            position_.first_token + group() * kColumns, lane_};
  }

  __device__ Exchange exchange_of(int32_t warp) const {
    return Exchange(shape_, ptx::shared_address(shared_.weights),
                    &shared_.barriers->parts, position_.part, warp, lane_);
  }

  __device__ void load_token_scale() const {
    if (thread_ >= Layout::kTokens) return;
    int32_t token = position_.first_token + thread_;
    bool is_scaled = args_.token_scale && token < args_.tokens.num_rows;
    shared_.token_scales[thread_] = is_scaled ? args_.token_scale[token] : 1.0f;
  }

  __device__ void await_tiles() const {
#pragma unroll
    for (int32_t tile = 0; tile < most_tiles; ++tile) {
      if (has(tile)) ptx::barrier_wait(shared_.barriers->full + tile, 0);
    }
    ptx::wait_for_copies();
    ptx::proxy_fence();
    __syncthreads();
  }

  __device__ uint64_t descriptor(const uint8_t* first, int32_t stride,
                                 int32_t tile) const {
    int32_t present = min(tile, position_.num_tiles - 1);
    return ptx::swizzled_descriptor(ptx::shared_address(first) +
                                    present * stride);
  }

  __device__ void multiply_tiles(Total& total) const {
    Total parts[most_tiles];
    uint64_t weights[most_tiles];
    uint64_t tokens[most_tiles];
    const uint8_t* first = shared_.tokens + group() * kColumns * kTileRowBytes;
#pragma unroll
    for (int32_t tile = 0; tile < most_tiles; ++tile) {
      weights[tile] = descriptor(shared_.weights, Layout::kUnitBytes, tile);
      tokens[tile] = descriptor(first, Layout::kTokenBytes, tile);
      ptx::hold(parts[tile]);
    }
    multiply_interleaved<kColumns, most_tiles>(parts, weights, tokens);
    clear(total);
#pragma unroll
    for (int32_t tile = 0; tile < most_tiles; ++tile) {
      ptx::hold(parts[tile]);
      if (!has(tile)) continue;
#pragma unroll
      for (int32_t i = 0; i < kColumns / 2; ++i) total[i] += parts[tile][i];
    }
  }

  const ProductArgs& args_;
  const ProductShape& shape_;
  ShortShared shared_;
  ProductPosition position_;
  int32_t thread_;
  int32_t lane_;
  int32_t warp_;
};

template <typename Layout, int32_t most_tiles, typename Output>
__global__
__launch_bounds__(kMultiplierThreads, kShortResidents) void short_product(
    const __grid_constant__ ProductArgs args,
    const __grid_constant__ ProductShape shape) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ ShortBarriers barriers;
  __shared__ __align__(16) float token_scales[Layout::kTokens];
  ShortProduct<Layout, most_tiles, Output> product(
      args, shape,
      {shared, shared + shape.num_stages * Layout::kUnitBytes, &barriers,
       token_scales},
      static_cast<int32_t>(threadIdx.x));
  product.begin();
  __syncthreads();
  if (product.is_cluster()) ptx::cluster_arrive_relaxed();
  product.multiply();
}

}
