#include <algorithm>

#include "native/base/cuda.hpp"
#include "native/collectives/peer/gather.hpp"
#include "native/collectives/peer/wait.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::collectives {
namespace {

constexpr int32_t kThreads = 256;
constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kUnitsPerThread = 4;

__device__ bool has_reached(const uint32_t* flag, uint32_t epoch) {
  return static_cast<int32_t>(ptx::acquire_from_system(flag) - epoch) >= 0;
}

__device__ bool is_peer(const Gather& gather) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  return thread < gather.world_size && thread != gather.rank;
}

__device__ bool wait_for_all(const Gather& gather, const uint32_t* flags,
                             uint32_t epoch) {
  bool has_come = true;
  if (is_peer(gather))
    has_come = wait_until(gather.stop, threadIdx.x, [&] {
      return has_reached(flags + threadIdx.x, epoch);
    });
  return __syncthreads_and(has_come);
}

template <typename Unit>
__device__ void copy_to_all(const Gather& gather, const GatherBlocks& blocks) {
  const int64_t row_units = blocks.row_bytes / sizeof(Unit);
  const int64_t num_units = blocks.num_rows * row_units;
  const int64_t begin = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int32_t step = 0; step < gather.world_size; ++step) {
    const int32_t peer = (gather.rank + step) % gather.world_size;
    const Unit* input =
        reinterpret_cast<const Unit*>(blocks.input + peer * blocks.input_step);
    Unit* output = reinterpret_cast<Unit*>(gather.output[peer]);
    for (int64_t unit = begin; unit < num_units; unit += stride) {
      const int64_t row = unit / row_units;
      const int64_t place =
          (row * gather.world_size + gather.rank) * row_units +
          unit % row_units;
      output[place] = input[unit];
    }
  }
}

__device__ bool is_last_block(GatherFlags& own) {
  __threadfence_system();
  __syncthreads();
  __shared__ bool is_last;
  if (threadIdx.x == 0)
    is_last = atomicAdd(&own.num_arrived, 1u) == gridDim.x - 1;
  __syncthreads();
  __threadfence_system();
  return is_last;
}

template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    gather_blocks(Gather gather, GatherBlocks blocks) {
  ptx::wait_for_predecessor();
  GatherFlags& own = *gather.flags[gather.rank];
  const uint32_t epoch = ptx::acquire_from_system(&own.epoch) + 1;
  if (blockIdx.x == 0 && is_peer(gather))
    ptx::release_to_system(&gather.flags[threadIdx.x]->entered[gather.rank],
                           epoch);
  if (wait_for_all(gather, own.entered, epoch))
    copy_to_all<Unit>(gather, blocks);
  if (!is_last_block(own)) return;
  if (is_peer(gather))
    ptx::release_to_system(&gather.flags[threadIdx.x]->finished[gather.rank],
                           epoch);
  wait_for_all(gather, own.finished, epoch);
  if (threadIdx.x != 0) return;
  own.num_arrived = 0;
  own.epoch = epoch;
}

int64_t alignment_of(const Gather& gather, const GatherBlocks& blocks) {
  uint64_t bits = reinterpret_cast<uint64_t>(blocks.input) |
                  static_cast<uint64_t>(blocks.input_step) |
                  static_cast<uint64_t>(blocks.row_bytes);
  for (int32_t rank = 0; rank < gather.world_size; ++rank)
    bits |= reinterpret_cast<uint64_t>(gather.output[rank]);
  return static_cast<int64_t>(bits & (~bits + 1));
}

template <typename Unit>
void launch_as(const char* where, cudaStream_t stream, const Gather& gather,
               const GatherBlocks& blocks) {
  const int64_t units = blocks.num_rows * blocks.row_bytes / sizeof(Unit);
  const int64_t each = kThreads * kUnitsPerThread;
  const int64_t wanted = std::max<int64_t>(1, (units + each - 1) / each);
  const dim3 grid(static_cast<uint32_t>(
      std::min({wanted, kMaxBlocks, gather.most_blocks})));
  launch(where, stream, {grid, dim3(kThreads)}, gather_blocks<Unit>, gather,
         blocks);
}

}

void gather(const char* where, cudaStream_t stream, const Gather& gather,
            const GatherBlocks& blocks) {
  const int64_t alignment = alignment_of(gather, blocks);
  if (alignment >= 16 || alignment == 0)
    launch_as<uint4>(where, stream, gather, blocks);
  else if (alignment >= 4)
    launch_as<uint32_t>(where, stream, gather, blocks);
  else
    launch_as<uint8_t>(where, stream, gather, blocks);
}

}
