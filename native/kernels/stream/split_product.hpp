#ifndef GLM_KERNELS_STREAM_SPLIT_PRODUCT_HPP
#define GLM_KERNELS_STREAM_SPLIT_PRODUCT_HPP

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/exchange.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/kernels/stream/tile_product.hpp"
#include "native/kernels/stream/tile_ring.hpp"
#include "native/kernels/stream/token_block.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::stream {

constexpr int32_t kCombinerBarrier = 1;
constexpr int32_t kMaxThreads =
    (kMaxWarpgroups + 1) * kWarpgroupThreads + kWarpThreads;

struct ProductBarriers {
  RingBarriers ring;
  ExchangeBarriers exchange;
  uint64_t tokens;
};

struct ChannelTerms {
  float scale[kMaxWarpgroups * kWarpgroupRows];
  float bias[kMaxWarpgroups * kWarpgroupRows];
};

__device__ inline void sync_combiners() {
  asm volatile("bar.sync %0, %1;" ::"n"(kCombinerBarrier),
               "n"(kWarpgroupThreads)
               : "memory");
}

__device__ inline void store_output(float* output, float value) {
  *output = value;
}

__device__ inline void store_output(__nv_bfloat16* output, float value) {
  *output = __float2bfloat16_rn(value);
}

template <int32_t dtype, int32_t columns, typename Output>
class SplitProduct {
 public:
  __device__ SplitProduct(const ProductArgs& args, const ProductShape& shape,
                          uint8_t* shared, ProductBarriers* barriers,
                          ChannelTerms* terms)
      : args_(args),
        shape_(shape),
        shared_(ptx::shared_address(shared)),
        full_(ptx::shared_address(barriers->ring.full)),
        empty_(ptx::shared_address(barriers->ring.empty)),
        tokens_barrier_(&barriers->tokens),
        scales_(reinterpret_cast<float*>(shared + shape.scales_offset)),
        terms_(terms),
        rank_(static_cast<int32_t>(ptx::cluster_rank())),
        first_unit_(static_cast<int32_t>(ptx::cluster_index())),
        unit_step_(static_cast<int32_t>(ptx::num_clusters())),
        num_tiles_(shape.part_tiles + (rank_ < shape.num_longer_parts)),
        first_tile_(rank_ * shape.part_tiles +
                    min(rank_, shape.num_longer_parts)),
        exchange_(shape, shared_, &barriers->exchange, rank_) {}

  __device__ void init(int32_t lane) const {
    if (lane < shape_.num_stages) {
      ptx::barrier_init(full_ + lane * kBarrierBytes, 1);
      ptx::barrier_init(empty_ + lane * kBarrierBytes, shape_.num_warpgroups);
    }
    if (lane == kWarpThreads - 1) {
      exchange_.init();
      ptx::barrier_init(tokens_barrier_, num_loaders());
    }
    ptx::barrier_init_fence();
  }

  __device__ void produce() const {
    RingCursor cursor;
    for (int32_t unit = first_unit_; unit < shape_.num_units;
         unit += unit_step_) {
      const uint8_t* source = unit_source(unit);
#pragma unroll 1
      for (int32_t tile = 0; tile < num_tiles_; ++tile) {
        uint32_t full = full_ + cursor.stage * kBarrierBytes;
        ptx::barrier_wait(empty_ + cursor.stage * kBarrierBytes,
                          cursor.parity ^ 1);
        ptx::barrier_expect(full, shape_.stage_bytes);
        ptx::bulk_copy(shared_ + cursor.stage * shape_.stage_bytes, source,
                       shape_.stage_bytes, full, ptx::kEvictFirst);
        source += kTileBytes;
        cursor.advance(shape_.num_stages);
      }
    }
  }

  __device__ void load_tokens(int32_t thread) const {
    TokenBlock block{shared_ + shape_.block_offset, first_tile_ * kTileRowBytes,
                     num_tiles_};
    load_token_block<columns, std::is_same_v<Output, float>>(
        args_.tokens, block, thread, num_loaders(), tokens_barrier_);
  }

  __device__ void multiply(int32_t thread) const {
    RingCursor cursor;
    SlotCursor slot;
    ptx::barrier_wait(tokens_barrier_, 0);
    ptx::proxy_fence();
    for (int32_t unit = first_unit_; unit < shape_.num_units;
         unit += unit_step_) {
      float total[columns / 2];
      clear(total);
      multiply_unit(total, cursor, thread);
      exchange_.send(total, slot, thread / kWarpThreads);
      slot.advance(shape_.num_slots);
    }
  }

  __device__ void combine(int32_t thread) const {
    load_token_scales(thread);
    SlotCursor slot;
    for (int32_t unit = first_unit_; unit < shape_.num_units;
         unit += unit_step_) {
      if (slot.is_reused || slot.slot > 0) sync_combiners();
      load_channel_terms(unit, thread);
      if (thread == 0) exchange_.expect(slot);
      sync_combiners();
      exchange_.await(slot);
      finish_unit(unit, slot, thread);
      if (unit + shape_.num_slots * unit_step_ < shape_.num_units) {
        exchange_.drain(slot);
      }
      slot.advance(shape_.num_slots);
    }
  }

 private:
  static constexpr uint32_t kBarrierBytes = sizeof(uint64_t);

  __device__ int32_t num_loaders() const {
    return (shape_.num_warpgroups + 1) * kWarpgroupThreads;
  }

  __device__ const uint8_t* unit_source(int32_t unit) const {
    int32_t half = unit * shape_.num_warpgroups;
    int64_t tile = int64_t{half / 2} * args_.num_column_tiles + first_tile_;
    return args_.tiles + tile * kTileBytes + half % 2 * kWarpgroupBytes;
  }

  __device__ uint64_t await_weights(const RingCursor& cursor,
                                    uint32_t warpgroup_stages) const {
    ptx::barrier_wait(full_ + cursor.stage * kBarrierBytes, cursor.parity);
    return ptx::swizzled_descriptor(warpgroup_stages +
                                    cursor.stage * shape_.stage_bytes);
  }

  __device__ void release_weights(RingCursor& cursor, bool is_elected) const {
    if (is_elected) ptx::barrier_arrive(empty_ + cursor.stage * kBarrierBytes);
    cursor.advance(shape_.num_stages);
  }

  __device__ void multiply_unit(float (&total)[columns / 2], RingCursor& cursor,
                                int32_t thread) const {
    uint32_t stages = shared_ + thread / kWarpgroupThreads * kWarpgroupBytes;
    bool is_elected = thread % kWarpgroupThreads == 0;
    uint64_t tokens = ptx::swizzled_descriptor(shared_ + shape_.block_offset);
    constexpr uint64_t kTokenStep = columns * kTileRowBytes / 16;
    int32_t tile = 0;
#pragma unroll 1
    for (; tile + 1 < num_tiles_; tile += 2) {
      multiply_pair(total, cursor, stages, tokens, is_elected);
      tokens += 2 * kTokenStep;
    }
    if (tile < num_tiles_) {
      multiply_one(total, cursor, stages, tokens, is_elected);
    }
  }

  __device__ void multiply_one(float (&total)[columns / 2], RingCursor& cursor,
                               uint32_t stages, uint64_t tokens,
                               bool is_elected) const {
    uint64_t weights = await_weights(cursor, stages);
    if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
      float part[columns / 2];
      begin_part<columns>(part, weights, tokens);
      end_part<columns, 0>(total, part);
    } else {
      add_tile_in_place<columns>(total, weights, tokens);
    }
    release_weights(cursor, is_elected);
  }

  __device__ void multiply_pair(float (&total)[columns / 2], RingCursor& cursor,
                                uint32_t stages, uint64_t tokens,
                                bool is_elected) const {
    constexpr uint64_t kTokenStep = columns * kTileRowBytes / 16;
    if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
      RingCursor next = cursor;
      next.advance(shape_.num_stages);
      float first[columns / 2];
      float second[columns / 2];
      begin_part<columns>(first, await_weights(cursor, stages), tokens);
      begin_part<columns>(second, await_weights(next, stages),
                          tokens + kTokenStep);
      end_part<columns, 1>(total, first);
      release_weights(cursor, is_elected);
      end_part<columns, 0>(total, second);
      release_weights(cursor, is_elected);
    } else {
      multiply_one(total, cursor, stages, tokens, is_elected);
      multiply_one(total, cursor, stages, tokens + kTokenStep, is_elected);
    }
  }

  __device__ void load_token_scales(int32_t thread) const {
    if (thread >= columns) return;
    bool is_scaled = args_.token_scale && thread < args_.tokens.num_rows;
    scales_[thread] = is_scaled ? args_.token_scale[thread] : 1.0f;
  }

  __device__ int32_t channel_at(int32_t unit, int32_t row) const {
    return logical_row(args_.role, args_.rows,
                       unit * shape_.num_warpgroups * kWarpgroupRows + row);
  }

  __device__ void load_channel_terms(int32_t unit, int32_t thread) const {
    if (thread >= shape_.num_warpgroups * kWarpgroupRows) return;
    int32_t channel = channel_at(unit, thread);
    bool has_scale = channel >= 0 && args_.channel_scale;
    bool has_bias = channel >= 0 && args_.bias;
    terms_->scale[thread] = has_scale ? args_.channel_scale[channel] : 1.0f;
    terms_->bias[thread] = has_bias ? args_.bias[channel] : 0.0f;
  }

  __device__ void finish_unit(int32_t unit, const SlotCursor& slot,
                              int32_t thread) const {
    int32_t received = exchange_.num_received();
    int32_t lane = thread % kWarpThreads;
#pragma unroll 1
    for (int32_t piece = thread / kWarpThreads; piece < received;
         piece += kWarpgroupWarps) {
      float4 sum = exchange_.add_parts(slot, piece);
      int32_t index = exchange_.index_of(piece);
      int32_t group = index / kWarpgroupWarps / shape_.num_warpgroups;
      int32_t warp = index - group * kWarpgroupWarps * shape_.num_warpgroups;
      int32_t row = warp * 16 + lane / 4;
      int32_t token = group * kGroupTokens + lane % 4 * 2;
      store_pair(unit, row, token, sum.x, sum.y);
      store_pair(unit, row + kPairRows, token, sum.z, sum.w);
    }
  }

  __device__ void store_pair(int32_t unit, int32_t row, int32_t token,
                             float first, float second) const {
    int32_t channel = channel_at(unit, row);
    if (channel < 0) return;
    float scale = terms_->scale[row];
    float bias = terms_->bias[row];
    Output* output = static_cast<Output*>(args_.output) +
                     int64_t{token} * args_.rows + channel;
    if (token < args_.tokens.num_rows) {
      store_output(output, first * scales_[token] * scale + bias);
    }
    if (token + 1 < args_.tokens.num_rows) {
      store_output(output + args_.rows,
                   second * scales_[token + 1] * scale + bias);
    }
  }

  const ProductArgs& args_;
  const ProductShape& shape_;
  uint32_t shared_;
  uint32_t full_;
  uint32_t empty_;
  uint64_t* tokens_barrier_;
  float* scales_;
  ChannelTerms* terms_;
  int32_t rank_;
  int32_t first_unit_;
  int32_t unit_step_;
  int32_t num_tiles_;
  int32_t first_tile_;
  Exchange<columns> exchange_;
};

template <int32_t dtype, int32_t columns, typename Output>
__global__ __launch_bounds__(kMaxThreads, 1) void split_product(
    const __grid_constant__ ProductArgs args,
    const __grid_constant__ ProductShape shape) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ ProductBarriers barriers;
  __shared__ ChannelTerms terms;
  int32_t thread = static_cast<int32_t>(threadIdx.x);
  int32_t num_multipliers = shape.num_warpgroups * kWarpgroupThreads;
  int32_t num_loaders = num_multipliers + kWarpgroupThreads;
  bool is_cluster = shape.split > 1;
  SplitProduct<dtype, columns, Output> product(args, shape, shared, &barriers,
                                               &terms);
  if (thread >= num_loaders) product.init(thread - num_loaders);
  __syncthreads();
  if (is_cluster) ptx::cluster_arrive_relaxed();
  if (thread >= num_loaders) {
    if (thread == num_loaders) product.produce();
    __syncwarp();
    if (is_cluster) ptx::cluster_wait();
    return;
  }
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  product.load_tokens(thread);
  if (is_cluster) ptx::cluster_wait();
  if (thread < num_multipliers) {
    product.multiply(thread);
  } else {
    product.combine(thread - num_multipliers);
  }
}

}

#endif
