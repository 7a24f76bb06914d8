#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/stream/fragment_store.hpp"
#include "native/kernels/stream/part_exchange.hpp"
#include "native/kernels/stream/part_finish.hpp"
#include "native/kernels/stream/product_multiplier.hpp"
#include "native/kernels/stream/product_producer.hpp"
#include "native/kernels/stream/product_stage.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "native/ptx/tensor_copy.hpp"
#include "native/ptx/wgmma_bf16.hpp"

namespace glm::kernels::stream {

constexpr int32_t kScalesBarrier = 1;

__device__ inline void sync_multipliers() {
  asm volatile("bar.sync %0, %1;" ::"n"(kScalesBarrier), "n"(kMultiplierThreads)
               : "memory");
}

template <int32_t dtype, typename Layout, typename Output>
class SplitProduct {
 public:
  __device__ SplitProduct(const ProductArgs& args, const ProductShape& shape,
                          const ProductShared& shared)
      : args_(args),
        shape_(shape),
        shared_(shared),
        position_(shape, Layout::kTokens) {}

  __device__ void begin(int32_t lane) const {
    init_ring(lane);
    __syncwarp();
    producer_of(lane).begin_weights();
    __syncwarp();
    if (is_cluster() && lane < kPartWarps) exchange_of(lane, lane).init();
    ptx::barrier_init_fence();
  }

  __device__ void produce(const CUtensorMap* map, int32_t thread) const {
    ptx::tensor_prefetch(map);
    producer_of(thread).produce(map);
    __syncwarp();
    if (is_cluster()) ptx::cluster_wait();
  }

  __device__ void multiply(int32_t thread) const {
    ptx::wait_for_predecessor();
    ptx::let_successor_start();
    if (thread == 0) ptx::barrier_arrive(&shared_.barriers->predecessor_ended);
    load_token_scales(thread);
    int32_t lane = thread % kWarpThreads;
    int32_t warp = __shfl_sync(~0u, thread / kWarpThreads, 0);
    Multiplier multiplier(shape_, shared_, position_, warp, lane);
    Exchange exchange = exchange_of(warp, lane);
    int32_t round = 0;
    for (int32_t unit = position_.first_unit; unit < shape_.end_unit;
         unit += position_.unit_step) {
      FragmentPlace place = place_of(multiplier, unit, lane);
      bool is_followed = unit + position_.unit_step < shape_.end_unit;
      multiply_unit(multiplier, exchange, place, {round++, is_followed});
    }
  }

  __device__ bool is_cluster() const { return shape_.split > 1; }

 private:
  using Finish = PartFinish<Layout, Output>;
  using Exchange = typename Finish::Exchange;
  using Multiplier = ProductMultiplier<dtype, Layout>;
  using Total = typename Multiplier::Total;

  struct Round {
    int32_t index;
    bool is_followed;
  };

  __device__ void init_ring(int32_t lane) const {
    ProductBarriers& barriers = *shared_.barriers;
    if (lane < shape_.num_stages) {
      ptx::barrier_init(barriers.weights + lane, 1);
      ptx::barrier_init(barriers.tokens + lane,
                        shape_.has_token_map ? 1 : Layout::kProducerThreads);
      ptx::barrier_init(barriers.empty + lane, kPartGroups);
    }
    if (lane == 0) ptx::barrier_init(&barriers.predecessor_ended, 1);
    ptx::barrier_init_fence();
  }

  __device__ ProductProducer<Layout> producer_of(int32_t thread) const {
    return ProductProducer<Layout>(args_, shape_, shared_, position_, thread);
  }

  __device__ Exchange exchange_of(int32_t warp, int32_t lane) const {
    return Exchange(shape_, ptx::shared_address(shared_.data),
                    &shared_.barriers->parts, position_.part, warp, lane);
  }

  __device__ FragmentPlace place_of(const Multiplier& multiplier, int32_t unit,
                                    int32_t lane) const {
    return {unit * Layout::kUnitRows + multiplier.first_row(),
            position_.first_token + multiplier.first_token(), lane};
  }

  __device__ void load_token_scales(int32_t thread) const {
    for (int32_t i = thread; i < Layout::kTokens; i += kMultiplierThreads) {
      int32_t token = position_.first_token + i;
      bool is_scaled = args_.token_scale && token < args_.tokens.num_rows;
      shared_.token_scales[i] = is_scaled ? args_.token_scale[token] : 1.0f;
    }
    sync_multipliers();
  }

  __device__ void multiply_unit(Multiplier& multiplier,
                                const Exchange& exchange,
                                const FragmentPlace& place,
                                const Round& round) const {
    FragmentTerms terms = load_terms(args_, place);
    Total total;
    clear(total);
    multiplier.multiply_unit(total);
    if (is_cluster()) exchange_parts(exchange, total, round.index);
    Finish finish(args_, shape_, shared_.token_scales, position_.first_token);
    finish.finish(total, exchange, place, terms);
    if (is_cluster() && round.is_followed) exchange.drain();
  }

  __device__ void exchange_parts(const Exchange& exchange, const Total& total,
                                 int32_t round) const {
    if (round == 0) ptx::cluster_wait();
    if (shape_.reuses_stages) exchange.await_idle_stages();
    exchange.send(total, round);
    exchange.await(round);
  }

  const ProductArgs& args_;
  const ProductShape& shape_;
  ProductShared shared_;
  ProductPosition position_;
};

template <int32_t dtype, typename Layout, typename Output>
__global__
__launch_bounds__(Layout::kThreads, Layout::kResidents) void split_product(
    const __grid_constant__ ProductArgs args,
    const __grid_constant__ ProductShape shape,
    const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ ProductBarriers barriers;
  __shared__ __align__(16) float token_scales[kMaxTokens];
  int32_t thread = static_cast<int32_t>(threadIdx.x);
  SplitProduct<dtype, Layout, Output> product(
      args, shape,
      {shared, shared + shape.num_stages * Layout::kUnitBytes, &barriers,
       token_scales});
  if (thread / kWarpThreads == kPartWarps) {
    product.begin(thread % kWarpThreads);
  }
  __syncthreads();
  if (product.is_cluster()) ptx::cluster_arrive_relaxed();
  if (thread >= kMultiplierThreads) {
    if constexpr (Layout::kMovesRegisters) {
      ptx::shrink_registers<kProducerRegisters>();
    }
    product.produce(&map, thread - kMultiplierThreads);
  } else {
    if constexpr (Layout::kMovesRegisters) {
      ptx::grow_registers<kMultiplierRegisters>();
    }
    product.multiply(thread);
  }
}

}
