#pragma once

#include "native/base/cuda.hpp"
#include "native/kernels/prefill_attention/consumer.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::prefill_attention_detail {
namespace {

template <typename Tile>
__device__ void init_control(Control<Tile>& control) {
  if (threadIdx.x == 0) {
    init_ring(control.keys, Tile::kTileProducers);
    init_ring(control.values, Tile::kTileProducers);
    init_ring(control.queries, Tile::kQueryThreads);
    ptx::barrier_init_fence();
  }
  __syncthreads();
}

template <typename Tile, typename Producer>
__global__ void __launch_bounds__(kNumThreads, 1)
    attend_prefill_rows(const __grid_constant__ Parameters parameters) {
  extern __shared__ uint8_t memory[];
  __shared__ Control<Tile> control;
  const Buffers<Tile> buffers = align_buffers<Tile>(memory);
  init_control(control);
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  build_segment_table(parameters, control.unsorted, control.table);
  const int32_t warpgroup =
      __shfl_sync(0xFFFFFFFFu, threadIdx.x / kWarpgroupThreads, 0);
  if (warpgroup == kNumConsumers) {
    ptx::shrink_registers<Tile::kProducerRegisters>();
    Producer::produce(parameters, control, buffers);
  } else {
    ptx::grow_registers<Tile::kConsumerRegisters>();
    consume(parameters, control, buffers, warpgroup);
  }
}

template <typename Tile, typename Producer>
void launch_tiles(cudaStream_t stream, int32_t num_blocks,
                  const Parameters& parameters) {
  LaunchShape shape;
  shape.grid = dim3(num_blocks);
  shape.block = dim3(kNumThreads);
  shape.shared_bytes = Tile::kSharedBytes;
  launch("prefill_attention", stream, shape,
         attend_prefill_rows<Tile, Producer>, parameters);
}

template <template <int32_t> typename Tiles, typename Producer>
void launch_head(cudaStream_t stream, int32_t num_blocks,
                 const Parameters& parameters) {
  using Launcher = void (*)(cudaStream_t, int32_t, const Parameters&);
  constexpr Launcher kLaunchers[] = {
      launch_tiles<Tiles<1>, Producer>, launch_tiles<Tiles<2>, Producer>,
      launch_tiles<Tiles<3>, Producer>, launch_tiles<Tiles<4>, Producer>};
  const int32_t halves = num_halves(GLM_DTYPE_BF16, parameters.cache.head_dim);
  kLaunchers[halves - 1](stream, num_blocks, parameters);
}

}

}
