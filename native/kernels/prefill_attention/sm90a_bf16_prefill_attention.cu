#include "native/base/cuda.hpp"
#include "native/kernels/prefill_attention/consumer.hpp"
#include "native/kernels/prefill_attention/launch.hpp"
#include "native/kernels/prefill_attention/producer.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::prefill_attention_detail {
namespace {

constexpr int32_t kProducerRegisters = 56;
constexpr int32_t kConsumerRegisters = 224;

template <typename Tile>
__device__ void init_control(Control<Tile>& control) {
  if (threadIdx.x == 0) {
    init_ring(control.keys, 1);
    init_ring(control.values, 1);
    init_ring(control.queries, kNumQueryThreads);
    ptx::barrier_init_fence();
  }
  __syncthreads();
}

template <typename Tile>
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
    ptx::shrink_registers<kProducerRegisters>();
    const int32_t thread = threadIdx.x % kWarpgroupThreads;
    if (thread < kWarpThreads)
      stream_tiles<Tile, Side::kKeys>(parameters, control, buffers);
    else if (thread < 2 * kWarpThreads)
      stream_tiles<Tile, Side::kValues>(parameters, control, buffers);
    else
      load_queries(parameters, control, buffers, thread - 2 * kWarpThreads);
  } else {
    ptx::grow_registers<kConsumerRegisters>();
    consume(parameters, control, buffers, warpgroup);
  }
}

template <int32_t halves>
void launch_halves(cudaStream_t stream, int32_t num_blocks,
                   const Parameters& parameters) {
  LaunchShape shape;
  shape.grid = dim3(num_blocks);
  shape.block = dim3(kNumThreads);
  shape.shared_bytes = Tiling<halves>::kSharedBytes;
  launch("prefill_attention", stream, shape,
         attend_prefill_rows<Tiling<halves>>, parameters);
}

}

void launch_bf16(cudaStream_t stream, int32_t num_blocks,
                 const Parameters& parameters) {
  using Launcher = void (*)(cudaStream_t, int32_t, const Parameters&);
  constexpr Launcher kLaunchers[] = {launch_halves<1>, launch_halves<2>,
                                     launch_halves<3>, launch_halves<4>};
  const int32_t halves = num_halves(GLM_DTYPE_BF16, parameters.cache.head_dim);
  kLaunchers[halves - 1](stream, num_blocks, parameters);
}

}
