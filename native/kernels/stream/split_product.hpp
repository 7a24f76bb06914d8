#ifndef GLM_KERNELS_STREAM_SPLIT_PRODUCT_HPP
#define GLM_KERNELS_STREAM_SPLIT_PRODUCT_HPP

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/exchange.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/kernels/stream/tile_product.hpp"
#include "native/kernels/stream/tile_ring.hpp"
#include "native/kernels/stream/token_block.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "native/ptx/tensor_copy.hpp"

namespace glm::kernels::stream {

constexpr int32_t kCombinerBarrier = 1;
constexpr int32_t kMaxThreads =
    kMaxWarpgroups * kWarpgroupThreads + kCombinerThreads + kWarpThreads;

struct ProductBarriers {
  RingBarriers ring;
  ExchangeBarriers exchange;
  uint64_t tokens[kTokenBarriers];
};

struct ChannelTerms {
  float scale;
  float bias;
  int32_t channel;
  int32_t unused;
};

using UnitTerms = ChannelTerms[kMaxWarpgroups * kWarpgroupRows];

struct SharedParts {
  uint8_t* data;
  ProductBarriers* barriers;
  ChannelTerms* terms;
};

__device__ inline void sync_combiners() {
  asm volatile("bar.sync %0, %1;" ::"n"(kCombinerBarrier), "n"(kCombinerThreads)
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
                          const SharedParts& shared)
      : args_(args),
        shape_(shape),
        shared_(shared),
        stages_(ptx::shared_address(shared.data)),
        full_(ptx::shared_address(shared.barriers->ring.full)),
        empty_(ptx::shared_address(shared.barriers->ring.empty)),
        tokens_(ptx::shared_address(shared.barriers->tokens)),
        scales_(reinterpret_cast<float*>(shared.data + shape.scales_offset)),
        rank_(static_cast<int32_t>(ptx::cluster_rank())),
        first_unit_(static_cast<int32_t>(ptx::cluster_index())),
        unit_step_(static_cast<int32_t>(ptx::num_clusters())),
        num_tiles_(shape.part_tiles + (rank_ < shape.num_longer_parts)),
        first_tile_(rank_ * shape.part_tiles +
                    min(rank_, shape.num_longer_parts)),
        exchange_(shape, stages_, &shared.barriers->exchange, rank_) {}

  __device__ void init(int32_t lane) const {
    if (lane < shape_.num_stages) {
      ptx::barrier_init(full_ + lane * kBarrierBytes, 1);
      ptx::barrier_init(empty_ + lane * kBarrierBytes, shape_.num_warpgroups);
    }
    if (lane < kTokenBarriers) {
      ptx::barrier_init(tokens_ + lane * kBarrierBytes,
                        shape_.has_token_map ? 1 : num_loaders());
    }
    if (lane == kWarpThreads - 1) exchange_.init();
    ptx::barrier_init_fence();
  }

  __device__ void produce(const CUtensorMap* map) const {
    ptx::tensor_prefetch(map);
    TileCursor weights = first_tile();
    RingCursor ring;
    for (int32_t i = 0; i < shape_.num_stages; ++i) {
      push_weights(weights, ring.stage);
      step(weights, ring);
    }
    ptx::wait_for_predecessor();
    if (shape_.has_token_map) begin_tokens(map);
#pragma unroll 1
    while (weights.unit < shape_.num_units) {
      ptx::barrier_wait(empty_ + ring.stage * kBarrierBytes, ring.parity ^ 1);
      push_weights(weights, ring.stage);
      if (kStreams) push_tokens(map, weights.tile, ring.stage);
      step(weights, ring);
    }
  }

  __device__ void load_tokens(int32_t thread) const {
    TokenBlock block{shared_.data + shape_.block_offset,
                     first_tile_ * kTileRowBytes, num_tiles_};
    load_token_block<columns>(args_.tokens, block, thread, num_loaders());
    ptx::proxy_fence();
    for (int32_t i = 0; i < kTokenBarriers; ++i) {
      ptx::barrier_arrive(tokens_ + i * kBarrierBytes);
    }
  }

  __device__ void multiply(int32_t thread) const {
    RingCursor ring;
    SlotCursor slot;
    bool awaits_tokens = !kStreams;
    for (int32_t unit = first_unit_; unit < shape_.num_units;
         unit += unit_step_) {
      Total total;
      clear(total);
      multiply_unit(total, ring, thread, awaits_tokens);
      awaits_tokens = false;
#pragma unroll
      for (int32_t i = 0; i < kWindows; ++i) {
        exchange_.send(total + i * (kWindow / 2), slot, thread / kWarpThreads);
        slot.advance(shape_.num_slots);
      }
    }
  }

  __device__ void combine(int32_t thread) const {
    load_token_scales(thread);
    SlotCursor slot;
    for (int32_t unit = first_unit_; unit < shape_.num_units;
         unit += unit_step_) {
      if (unit != first_unit_) sync_combiners();
      load_channel_terms(unit, thread);
      sync_combiners();
      for (int32_t window = 0; window < kWindows; ++window) {
        if (thread == 0) exchange_.expect(slot);
        exchange_.await(slot);
        finish_window(window, slot, thread);
        if (is_needed_again(unit, window)) exchange_.drain(slot);
        slot.advance(shape_.num_slots);
      }
    }
  }

 private:
  static constexpr uint32_t kBarrierBytes = sizeof(uint64_t);
  static constexpr bool kStreams = streams_tokens(columns);
  static constexpr int32_t kWindow = window_tokens(columns);
  static constexpr int32_t kWindows = columns / kWindow;
  static constexpr int32_t kTokenBytes = columns * kTileRowBytes;
  static constexpr bool kPairs = !kStreams;
  using Total = float[columns / 2];

  struct TileCursor {
    int32_t unit;
    int32_t tile;
    const uint8_t* source;
  };

  __device__ int32_t num_loaders() const {
    return shape_.num_warpgroups * kWarpgroupThreads + kCombinerThreads;
  }

  __device__ const uint8_t* unit_source(int32_t unit) const {
    int32_t half = unit * shape_.num_warpgroups;
    int64_t tile = int64_t{half / 2} * args_.num_column_tiles + first_tile_;
    return args_.tiles + tile * kTileBytes + half % 2 * kWarpgroupBytes;
  }

  __device__ TileCursor first_tile() const {
    return {first_unit_, 0, unit_source(first_unit_)};
  }

  __device__ void step(TileCursor& cursor, RingCursor& ring) const {
    ring.advance(shape_.num_stages);
    cursor.source += kTileBytes;
    if (++cursor.tile < num_tiles_) return;
    cursor.tile = 0;
    cursor.unit += unit_step_;
    cursor.source = unit_source(cursor.unit);
  }

  __device__ void push_weights(const TileCursor& cursor, int32_t stage) const {
    if (cursor.unit >= shape_.num_units) return;
    uint32_t full = full_ + stage * kBarrierBytes;
    ptx::barrier_expect(full,
                        shape_.stage_bytes + (kStreams ? kTokenBytes : 0));
    ptx::bulk_copy(stages_ + stage * shape_.stage_stride, cursor.source,
                   shape_.stage_bytes, full, ptx::kEvictFirst);
  }

  __device__ void copy_tokens(const CUtensorMap* map, int32_t tile,
                              int32_t offset, uint64_t* barrier) const {
    ptx::tensor_copy(shared_.data + offset, map,
                     (first_tile_ + tile) * kTileRowBytes, 0, barrier);
  }

  __device__ void push_tokens(const CUtensorMap* map, int32_t tile,
                              int32_t stage) const {
    copy_tokens(map, tile, stage * shape_.stage_stride + shape_.stage_bytes,
                &shared_.barriers->ring.full[stage]);
  }

  __device__ void begin_tokens(const CUtensorMap* map) const {
    if constexpr (kStreams) {
      TileCursor cursor = first_tile();
      RingCursor ring;
      for (int32_t i = 0; i < shape_.num_stages; ++i) {
        if (cursor.unit >= shape_.num_units) return;
        push_tokens(map, cursor.tile, i);
        step(cursor, ring);
      }
    } else {
      int32_t count = 1 << shape_.token_shift;
      for (int32_t tile = 0; tile < num_tiles_; ++tile) {
        uint64_t* barrier =
            &shared_.barriers->tokens[tile >> shape_.token_shift];
        if (tile % count == 0) {
          ptx::barrier_expect(barrier,
                              min(count, num_tiles_ - tile) * kTokenBytes);
        }
        copy_tokens(map, tile, shape_.block_offset + tile * kTokenBytes,
                    barrier);
      }
    }
  }

  __device__ void multiply_unit(Total& total, RingCursor& ring, int32_t thread,
                                bool awaits_tokens) const {
    uint32_t stages = stages_ + thread / kWarpgroupThreads * kWarpgroupBytes;
    bool is_elected = thread % kWarpgroupThreads == 0;
    if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
      multiply_promoted(total, ring, stages, is_elected, awaits_tokens);
    } else {
      multiply_in_place(total, ring, stages, is_elected, awaits_tokens);
    }
  }

  __device__ void multiply_promoted(Total& total, RingCursor& ring,
                                    uint32_t stages, bool is_elected,
                                    bool awaits_tokens) const {
    int32_t tile = 0;
    if constexpr (kPairs) {
#pragma unroll 1
      for (; tile + 1 < num_tiles_; tile += 2) {
        multiply_pair(total, ring, stages, tile, is_elected, awaits_tokens);
      }
    }
#pragma unroll 1
    for (; tile < num_tiles_; ++tile) {
      float part[columns / 2];
      begin_part<columns>(part, await_weights(ring, stages),
                          tokens_of(ring, tile, awaits_tokens));
      end_part<columns, 0>(total, part);
      release_stage(ring, is_elected);
    }
  }

  __device__ void multiply_in_place(Total& total, RingCursor& ring,
                                    uint32_t stages, bool is_elected,
                                    bool awaits_tokens) const {
    RingCursor done = ring;
    ptx::hold(total);
#pragma unroll 1
    for (int32_t tile = 0; tile < num_tiles_; ++tile) {
      uint64_t weights = await_weights(ring, stages);
      ptx::wgmma_fence();
      multiply_steps<dtype, columns>(total, weights,
                                     tokens_of(ring, tile, awaits_tokens), 1);
      ptx::wgmma_commit();
      ring.advance(shape_.num_stages);
      if (tile == 0) continue;
      ptx::wgmma_wait<1>();
      release_stage(done, is_elected);
    }
    ptx::wgmma_wait<0>();
    ptx::hold(total);
    release_stage(done, is_elected);
  }

  __device__ uint64_t await_weights(const RingCursor& ring,
                                    uint32_t stages) const {
    ptx::barrier_wait(full_ + ring.stage * kBarrierBytes, ring.parity);
    return ptx::swizzled_descriptor(stages + ring.stage * shape_.stage_stride);
  }

  __device__ uint64_t tokens_of(const RingCursor& ring, int32_t tile,
                                bool awaits_tokens) const {
    if (awaits_tokens) {
      int32_t index = tile >> shape_.token_shift;
      ptx::barrier_wait(tokens_ + index * kBarrierBytes, 0);
    }
    int32_t offset = kStreams
                         ? ring.stage * shape_.stage_stride + shape_.stage_bytes
                         : shape_.block_offset + tile * kTokenBytes;
    return ptx::swizzled_descriptor(stages_ + offset);
  }

  __device__ void release_stage(RingCursor& ring, bool is_elected) const {
    if (is_elected) ptx::barrier_arrive(empty_ + ring.stage * kBarrierBytes);
    ring.advance(shape_.num_stages);
  }

  __device__ void multiply_pair(Total& total, RingCursor& ring, uint32_t stages,
                                int32_t tile, bool is_elected,
                                bool awaits_tokens) const {
    RingCursor next = ring;
    next.advance(shape_.num_stages);
    float first[columns / 2];
    float second[columns / 2];
    begin_part<columns>(first, await_weights(ring, stages),
                        tokens_of(ring, tile, awaits_tokens));
    begin_part<columns>(second, await_weights(next, stages),
                        tokens_of(next, tile + 1, awaits_tokens));
    end_part<columns, 1>(total, first);
    release_stage(ring, is_elected);
    end_part<columns, 0>(total, second);
    release_stage(ring, is_elected);
  }

  __device__ void load_token_scales(int32_t thread) const {
    for (int32_t token = thread; token < columns; token += kCombinerThreads) {
      bool is_scaled = args_.token_scale && token < args_.tokens.num_rows;
      scales_[token] = is_scaled ? args_.token_scale[token] : 1.0f;
    }
  }

  __device__ void load_channel_terms(int32_t unit, int32_t thread) const {
    int32_t num_channels = shape_.num_warpgroups * kWarpgroupRows;
    for (int32_t row = thread; row < num_channels; row += kCombinerThreads) {
      int32_t channel =
          logical_row(args_.role, args_.rows, unit * num_channels + row);
      bool has_scale = channel >= 0 && args_.channel_scale;
      bool has_bias = channel >= 0 && args_.bias;
      shared_.terms[row] = {has_scale ? args_.channel_scale[channel] : 1.0f,
                            has_bias ? args_.bias[channel] : 0.0f, channel, 0};
    }
  }

  __device__ bool is_needed_again(int32_t unit, int32_t window) const {
    int32_t later = (window + shape_.num_slots) / kWindows;
    return unit + later * unit_step_ < shape_.num_units;
  }

  __device__ void finish_window(int32_t window, const SlotCursor& slot,
                                int32_t thread) const {
    int32_t received = exchange_.num_received();
    int32_t lane = thread % kWarpThreads;
    int32_t shift = shape_.num_warpgroups + 1;
#pragma unroll 4
    for (int32_t piece = thread / kWarpThreads; piece < received;
         piece += kCombinerWarps) {
      float4 sum = exchange_.add_parts(slot, piece);
      int32_t index = exchange_.index_of(piece);
      int32_t group = index >> shift;
      int32_t row = (index - (group << shift)) * 16 + lane / 4;
      int32_t token = window * kWindow + group * kGroupTokens + lane % 4 * 2;
      store_pair(row, token, sum.x, sum.y);
      store_pair(row + kPairRows, token, sum.z, sum.w);
    }
  }

  __device__ void store_pair(int32_t row, int32_t token, float first,
                             float second) const {
    float4 words = *reinterpret_cast<const float4*>(shared_.terms + row);
    float2 scales = *reinterpret_cast<const float2*>(scales_ + token);
    int32_t channel = __float_as_int(words.z);
    int32_t num_rows = channel < 0 ? 0 : args_.tokens.num_rows;
    Output* output = static_cast<Output*>(args_.output) +
                     int64_t{token} * args_.rows + channel;
    first = first * scales.x * words.x + words.y;
    second = second * scales.y * words.x + words.y;
    if (token < num_rows) store_output(output, first);
    if (token + 1 < num_rows) store_output(output + args_.rows, second);
  }

  const ProductArgs& args_;
  const ProductShape& shape_;
  SharedParts shared_;
  uint32_t stages_;
  uint32_t full_;
  uint32_t empty_;
  uint32_t tokens_;
  float* scales_;
  int32_t rank_;
  int32_t first_unit_;
  int32_t unit_step_;
  int32_t num_tiles_;
  int32_t first_tile_;
  Exchange<kWindow> exchange_;
};

template <int32_t dtype, int32_t columns, typename Output>
__global__ __launch_bounds__(kMaxThreads, 1) void split_product(
    const __grid_constant__ ProductArgs args,
    const __grid_constant__ ProductShape shape,
    const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ ProductBarriers barriers;
  __shared__ __align__(16) UnitTerms terms;
  int32_t thread = static_cast<int32_t>(threadIdx.x);
  int32_t num_multipliers = shape.num_warpgroups * kWarpgroupThreads;
  int32_t num_loaders = num_multipliers + kCombinerThreads;
  bool is_cluster = shape.split > 1;
  SplitProduct<dtype, columns, Output> product(args, shape,
                                               {shared, &barriers, terms});
  if (thread >= num_loaders) product.init(thread - num_loaders);
  __syncthreads();
  if (is_cluster) ptx::cluster_arrive_relaxed();
  if (thread >= num_loaders) {
    if (thread == num_loaders) product.produce(&map);
    __syncwarp();
    if (is_cluster) ptx::cluster_wait();
    return;
  }
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  if (!shape.has_token_map) product.load_tokens(thread);
  if (is_cluster) ptx::cluster_wait();
  if (thread < num_multipliers) {
    product.multiply(thread);
  } else {
    product.combine(thread - num_multipliers);
  }
}

}

#endif
