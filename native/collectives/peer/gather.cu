#include <algorithm>

#include "native/base/cuda.hpp"
#include "native/collectives/peer/gather.hpp"
#include "native/collectives/peer/wait.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::collectives {
namespace {

constexpr int32_t kThreads = 256;
constexpr int64_t kMaxBlocks = 264;
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
               reinterpret_cast<Unit*>(blocks.output + gather.distance[peer]),
               rows_to(blocks, peer) * row_units, begin);
  }
}

__device__ void copy_arrays(const Gather& gather, const GatherArrays& arrays) {
  for (int32_t i = 0; i < arrays.count; ++i) {
    const GatherBlocks& blocks = arrays.at[i];
    if (blocks.unit_bytes == sizeof(uint4))
      copy_to_all<uint4>(gather, blocks);
    else if (blocks.unit_bytes == sizeof(uint32_t))
      copy_to_all<uint32_t>(gather, blocks);
    else
      copy_to_all<uint8_t>(gather, blocks);
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

__global__ void __launch_bounds__(kThreads)
    gather_arrays(const __grid_constant__ Gather gather,
                  const __grid_constant__ GatherArrays arrays) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  GatherFlags& own = *gather.flags[gather.rank];
  const uint32_t epoch = ptx::acquire_from_system(&own.epoch) + 1;
  if (blockIdx.x == 0 && is_peer(gather))
    ptx::release_to_system(&gather.flags[threadIdx.x]->entered[gather.rank],
                           epoch);
  if (wait_for_all(gather, own.entered, epoch)) copy_arrays(gather, arrays);
  if (!is_last_block(own)) return;
  if (is_peer(gather))
    ptx::release_to_system(&gather.flags[threadIdx.x]->finished[gather.rank],
                           epoch);
  wait_for_all(gather, own.finished, epoch);
  if (threadIdx.x != 0) return;
  own.num_arrived = 0;
  own.epoch = epoch;
}

__global__ void __launch_bounds__(kThreads)
    copy_only(const __grid_constant__ Gather gather,
              const __grid_constant__ GatherArrays arrays) {
  ptx::wait_for_predecessor();
  copy_arrays(gather, arrays);
}

int32_t unit_bytes_of(const Gather& gather, const GatherBlocks& blocks) {
  uint64_t bits = reinterpret_cast<uint64_t>(blocks.input) |
                  reinterpret_cast<uint64_t>(blocks.output) |
                  static_cast<uint64_t>(blocks.row_bytes);
  for (int32_t rank = 0; rank < gather.world_size; ++rank)
    bits |= static_cast<uint64_t>(gather.distance[rank]);
  if (bits % sizeof(uint4) == 0) return sizeof(uint4);
  return bits % sizeof(uint32_t) == 0 ? sizeof(uint32_t) : 1;
}

int64_t units_of(const GatherBlocks& blocks) {
  return blocks.block_rows * blocks.row_bytes / blocks.unit_bytes;
}

template <typename Kernel>
void launch_arrays(const char* where, cudaStream_t stream, const Gather& gather,
                   GatherArrays arrays, Kernel kernel) {
  int64_t units = 0;
  for (int32_t i = 0; i < arrays.count; ++i) {
    arrays.at[i].unit_bytes = unit_bytes_of(gather, arrays.at[i]);
    units = std::max(units, units_of(arrays.at[i]));
  }
  const int64_t each = kThreads * kUnitsPerThread;
  const int64_t wanted = std::max<int64_t>(1, (units + each - 1) / each);
  const LaunchShape shape = {
      dim3(static_cast<uint32_t>(std::min(wanted, kMaxBlocks))),
      dim3(kThreads)};
  launch(where, stream, shape, kernel, gather, arrays);
}

}

void gather(const char* where, cudaStream_t stream, const Gather& gather,
            const GatherArrays& arrays) {
  launch_arrays(where, stream, gather, arrays, gather_arrays);
}

void copy_to_ranks(const char* where, cudaStream_t stream, const Gather& gather,
                   const GatherArrays& arrays) {
  launch_arrays(where, stream, gather, arrays, copy_only);
}

}
