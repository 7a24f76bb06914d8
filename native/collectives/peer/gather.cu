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
constexpr int32_t kInFlight = 4;

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
    has_come = wait_until(
        gather.stop, [] { return threadIdx.x; },
        [&] { return has_reached(flags + threadIdx.x, epoch); });
  return __syncthreads_and(has_come);
}

class Place {
 public:
  __device__ Place(const Gather& gather, int64_t row_units)
      : row_units_(row_units),
        unit_(int64_t{blockIdx.x} * blockDim.x + threadIdx.x),
        row_(unit_ / row_units),
        within_(unit_ % row_units),
        stride_(int64_t{gridDim.x} * blockDim.x),
        stride_rows_(stride_ / row_units),
        stride_within_(stride_ % row_units),
        world_size_(gather.world_size),
        rank_(gather.rank) {}

  __device__ int64_t source() const { return unit_; }
  __device__ int64_t destination() const {
    return (row_ * world_size_ + rank_) * row_units_ + within_;
  }
  __device__ void advance() {
    unit_ += stride_;
    row_ += stride_rows_;
    within_ += stride_within_;
    if (within_ < row_units_) return;
    within_ -= row_units_;
    ++row_;
  }

 private:
  int64_t row_units_, unit_, row_, within_;
  int64_t stride_, stride_rows_, stride_within_;
  int32_t world_size_, rank_;
};

__device__ int64_t rows_to(const GatherBlocks& blocks, int32_t peer) {
  return max(int64_t{0}, min(blocks.block_rows,
                             blocks.num_rows - peer * blocks.rows_apart));
}

template <typename Unit>
__device__ void copy_block(const Unit* input, Unit* output, int64_t num_units,
                           Place place) {
  while (place.source() < num_units) {
    Unit units[kInFlight];
    Place ahead = place;
#pragma unroll
    for (int32_t i = 0; i < kInFlight; ++i) {
      if (ahead.source() < num_units) units[i] = input[ahead.source()];
      ahead.advance();
    }
#pragma unroll
    for (int32_t i = 0; i < kInFlight; ++i) {
      if (place.source() < num_units) output[place.destination()] = units[i];
      place.advance();
    }
  }
}

template <typename Unit>
__device__ void copy_to_all(const Gather& gather, const GatherBlocks& blocks) {
  const int64_t row_units = blocks.row_bytes / sizeof(Unit);
  const Place begin(gather, row_units);
  for (int32_t step = 1; step <= gather.world_size; ++step) {
    const int32_t peer = (gather.rank + step) % gather.world_size;
    const char* input =
        blocks.input + peer * blocks.rows_apart * blocks.row_bytes;
    copy_block(reinterpret_cast<const Unit*>(input),
               reinterpret_cast<Unit*>(gather.output[peer]),
               rows_to(blocks, peer) * row_units, begin);
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
  ptx::let_successor_start();
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

template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    copy_blocks(Gather gather, GatherBlocks blocks) {
  ptx::wait_for_predecessor();
  copy_to_all<Unit>(gather, blocks);
}

int64_t alignment_of(const Gather& gather, const GatherBlocks& blocks) {
  uint64_t bits = reinterpret_cast<uint64_t>(blocks.input) |
                  static_cast<uint64_t>(blocks.row_bytes);
  for (int32_t rank = 0; rank < gather.world_size; ++rank)
    bits |= reinterpret_cast<uint64_t>(gather.output[rank]);
  return static_cast<int64_t>(bits & (~bits + 1));
}

template <typename Unit>
LaunchShape shape_of(const GatherBlocks& blocks) {
  const int64_t units = blocks.block_rows * blocks.row_bytes / sizeof(Unit);
  const int64_t each = kThreads * kUnitsPerThread;
  const int64_t wanted = std::max<int64_t>(1, (units + each - 1) / each);
  return {dim3(static_cast<uint32_t>(std::min(wanted, kMaxBlocks))),
          dim3(kThreads)};
}

template <typename KernelOfUnit>
void launch_blocks(const char* where, cudaStream_t stream, const Gather& gather,
                   const GatherBlocks& blocks, KernelOfUnit kernel_of) {
  auto launch_units = [&](auto unit) {
    launch(where, stream, shape_of<decltype(unit)>(blocks), kernel_of(unit),
           gather, blocks);
  };
  const int64_t alignment = alignment_of(gather, blocks);
  if (alignment >= 16 || alignment == 0)
    launch_units(uint4());
  else if (alignment >= 4)
    launch_units(uint32_t());
  else
    launch_units(uint8_t());
}

}

void gather(const char* where, cudaStream_t stream, const Gather& gather,
            const GatherBlocks& blocks) {
  launch_blocks(where, stream, gather, blocks,
                [](auto unit) { return gather_blocks<decltype(unit)>; });
}

void copy_to_ranks(const char* where, cudaStream_t stream, const Gather& gather,
                   const GatherBlocks& blocks) {
  launch_blocks(where, stream, gather, blocks,
                [](auto unit) { return copy_blocks<decltype(unit)>; });
}

}
