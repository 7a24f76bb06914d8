#ifndef GLM_KERNELS_STREAM_SPLIT_PRODUCT_HPP
#define GLM_KERNELS_STREAM_SPLIT_PRODUCT_HPP

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/kernels/stream/tile_product.hpp"
#include "native/kernels/stream/tile_ring.hpp"
#include "native/kernels/stream/token_block.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::stream {

constexpr int32_t kConsumerBarrier = 1;

__device__ inline void sync_consumers(int32_t num_warpgroups) {
  asm volatile("bar.sync %0, %1;" ::"r"(kConsumerBarrier),
               "r"(num_warpgroups * kWarpgroupThreads)
               : "memory");
}

__device__ inline void store_output(float* output, float value) {
  *output = value;
}

__device__ inline void store_output(__nv_bfloat16* output, float value) {
  *output = __float2bfloat16_rn(value);
}

struct ExchangeBarriers {
  uint64_t ready;
  uint64_t drained;
};

template <int32_t dtype, int32_t columns, typename Output>
class SplitProduct {
 public:
  __device__ SplitProduct(const ProductArgs& args, uint8_t* shared,
                          RingBarriers* ring_barriers,
                          ExchangeBarriers* exchange_barriers)
      : args_(args),
        barriers_(exchange_barriers),
        ring_{shared, ring_barriers, args.num_stages,
              args.num_warpgroups * kWarpgroupBytes},
        rank_(static_cast<int32_t>(ptx::cluster_rank())),
        first_tile_(part_begin(args.num_column_tiles, args.split, rank_)),
        num_tiles_(part_begin(args.num_column_tiles, args.split, rank_ + 1) -
                   first_tile_),
        slice_(slice_tokens(columns, args.split)),
        pitch_(exchange_pitch(args.num_warpgroups)) {
    int32_t most_tiles =
        static_cast<int32_t>(ceil_divide(args.num_column_tiles, args.split));
    block_ = shared + ring_.num_stages * ring_.stage_bytes;
    scales_ =
        reinterpret_cast<float*>(block_ + most_tiles * columns * kTileRowBytes);
    exchange_ = scales_ + columns;
  }

  __device__ void init() const {
    uint32_t num_warps = args_.split * args_.num_warpgroups * 4;
    ptx::barrier_init(&barriers_->ready, num_warps);
    ptx::barrier_init(&barriers_->drained, num_warps);
    init_ring(ring_, args_.num_warpgroups);
  }

  __device__ void produce() const {
    RingCursor cursor;
    for (int32_t unit = first_unit(); unit < args_.num_units;
         unit += num_clusters()) {
      const uint8_t* source = unit_source(unit);
      for (int32_t tile = 0; tile < num_tiles_; ++tile) {
        push_tile(ring_, cursor, source + int64_t{tile} * kTileBytes);
      }
    }
  }

  __device__ void load_tokens(int32_t thread) const {
    int32_t num_threads = args_.num_warpgroups * kWarpgroupThreads;
    load_token_block<columns>(block_, args_.tokens, first_tile_, num_tiles_,
                              thread, num_threads);
    for (int32_t token = thread; token < columns; token += num_threads) {
      bool is_scaled = args_.token_scale && token < args_.tokens.num_rows;
      scales_[token] = is_scaled ? args_.token_scale[token] : 1.0f;
    }
    ptx::proxy_fence();
    sync_consumers(args_.num_warpgroups);
  }

  __device__ void consume(int32_t thread) {
    RingCursor cursor;
    for (int32_t unit = first_unit(); unit < args_.num_units;
         unit += num_clusters()) {
      load_channel(unit, thread);
      float total[columns / 2];
      clear(total);
      multiply_unit(total, cursor, thread);
#pragma unroll
      for (int32_t token = 0; token < columns; token += kExchangeTokens) {
        if (token < args_.tokens.num_rows) exchange(total, token, thread);
      }
    }
  }

 private:
  __device__ int32_t first_unit() const { return blockIdx.x / args_.split; }
  __device__ int32_t num_clusters() const { return gridDim.x / args_.split; }

  __device__ const uint8_t* unit_source(int32_t unit) const {
    int64_t half = int64_t{unit} * args_.num_warpgroups;
    int64_t tile = half / 2 * args_.num_column_tiles + first_tile_;
    return args_.tiles + tile * kTileBytes + half % 2 * kWarpgroupBytes;
  }

  __device__ void load_channel(int32_t unit, int32_t thread) {
    int32_t num_channels = args_.num_warpgroups * kWarpgroupRows;
    channel_ = logical_row(args_.role, args_.rows,
                           unit * num_channels + thread % num_channels);
    bool has_scale = channel_ >= 0 && args_.channel_scale;
    bool has_bias = channel_ >= 0 && args_.bias;
    channel_scale_ = has_scale ? args_.channel_scale[channel_] : 1.0f;
    channel_bias_ = has_bias ? args_.bias[channel_] : 0.0f;
  }

  __device__ void multiply_unit(float (&total)[columns / 2], RingCursor& cursor,
                                int32_t thread) const {
    int32_t warpgroup = thread / kWarpgroupThreads;
    bool is_elected = thread % kWarpgroupThreads == 0;
    for (int32_t tile = 0; tile < num_tiles_; ++tile) {
      const uint8_t* weights =
          await_tile(ring_, cursor) + warpgroup * kWarpgroupBytes;
      add_tile<dtype, columns>(total, weights,
                               block_ + tile * (columns * kTileRowBytes));
      pop_tile(ring_, cursor, is_elected);
    }
  }

  __device__ void exchange(const float (&total)[columns / 2],
                           int32_t first_token, int32_t thread) {
    ptx::wait_for_peers(&barriers_->drained, exchange_parity_ ^ 1);
    send(total, first_token, thread);
    arrive_at_peers(&barriers_->ready);
    ptx::wait_for_peers(&barriers_->ready, exchange_parity_);
    combine(first_token, thread);
    arrive_at_peers(&barriers_->drained);
    exchange_parity_ ^= 1;
  }

  __device__ void arrive_at_peers(uint64_t* barrier) const {
    __syncwarp();
    int32_t peer = static_cast<int32_t>(threadIdx.x) % kWarpThreads;
    if (peer < args_.split) {
      ptx::arrive_at_peer(ptx::peer_address(barrier, peer));
    }
  }

  __device__ void send(const float (&total)[columns / 2], int32_t first_token,
                       int32_t thread) const {
    ProductLane lane(thread % kWarpgroupThreads);
    int32_t channel = thread / kWarpgroupThreads * kWarpgroupRows;
    uint32_t reciprocal = (65535 + slice_) / slice_;
#pragma unroll
    for (int32_t i = 0; i < columns / 2; ++i) {
      int32_t token = lane.token_of(i) - first_token;
      if (token < 0 || token >= kExchangeTokens) continue;
      if (token + first_token >= args_.tokens.num_rows) continue;
      int32_t peer = static_cast<int32_t>(token * reciprocal >> 16);
      int32_t row = rank_ * slice_ + token - peer * slice_;
      const float* cell =
          exchange_ + row * pitch_ + channel + lane.channel_of(i);
      ptx::store_to_peer(ptx::peer_address(cell, peer), total[i]);
    }
  }

  __device__ void combine(int32_t first_token, int32_t thread) const {
    int32_t num_channels = args_.num_warpgroups * kWarpgroupRows;
    if (channel_ < 0) return;
    for (int32_t local = thread / num_channels; local < slice_; local += 2) {
      int32_t within = rank_ * slice_ + local;
      int32_t token = first_token + within;
      if (within >= kExchangeTokens || token >= args_.tokens.num_rows) break;
      const float* cell = exchange_ + local * pitch_ + thread % num_channels;
      float sum = 0.0f;
      for (int32_t peer = 0; peer < args_.split; ++peer) {
        sum += cell[peer * slice_ * pitch_];
      }
      Output* output = static_cast<Output*>(args_.output);
      store_output(output + int64_t{token} * args_.rows + channel_,
                   sum * scales_[token] * channel_scale_ + channel_bias_);
    }
  }

  const ProductArgs& args_;
  ExchangeBarriers* barriers_;
  TileRing ring_;
  int32_t rank_;
  int32_t first_tile_;
  int32_t num_tiles_;
  int32_t slice_;
  int32_t pitch_;
  uint8_t* block_;
  float* scales_;
  float* exchange_;
  uint32_t exchange_parity_ = 0;
  int32_t channel_ = 0;
  float channel_scale_ = 1.0f;
  float channel_bias_ = 0.0f;
};

template <int32_t dtype, int32_t columns, typename Output>
__global__ __launch_bounds__(
    kMaxWarpgroups* kWarpgroupThreads + kWarpThreads,
    1) void split_product(const __grid_constant__ ProductArgs args) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ RingBarriers ring_barriers;
  __shared__ ExchangeBarriers exchange_barriers;
  int32_t thread = static_cast<int32_t>(threadIdx.x);
  int32_t num_consumers = args.num_warpgroups * kWarpgroupThreads;
  SplitProduct<dtype, columns, Output> product(args, shared, &ring_barriers,
                                               &exchange_barriers);
  if (thread == num_consumers) product.init();
  __syncthreads();
  ptx::cluster_arrive();
  ptx::let_successor_start();
  if (thread >= num_consumers) {
    if (thread == num_consumers) product.produce();
    __syncwarp();
    ptx::cluster_wait();
  } else {
    ptx::wait_for_predecessor();
    product.load_tokens(thread);
    ptx::cluster_wait();
    product.consume(thread);
  }
  __syncwarp();
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

}

#endif
