#ifndef GLM_KERNELS_PREFILL_SM90A_PRODUCT_HPP
#define GLM_KERNELS_PREFILL_SM90A_PRODUCT_HPP

#include <cuda_bf16.h>

#include "native/base/cuda.hpp"
#include "native/kernels/prefill/sm90a_store.hpp"
#include "native/kernels/prefill/sm90a_tiles.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "native/ptx/tensor_copy.hpp"
#include "native/ptx/wgmma_bf16_wide.hpp"
#include "native/ptx/wgmma_e4m3_wide.hpp"

namespace glm::kernels::prefill {

constexpr int32_t kRingBytes = 192 * 1024;
constexpr int32_t kMaxStages = 8;
constexpr int32_t kSliceBytes = kSliceTokens * kTileRowBytes;
constexpr int32_t kNumConsumers = 256;
constexpr int32_t kNumThreads = kNumConsumers + 128;
constexpr int32_t kConsumerRegisters = 224;
constexpr int32_t kProducerRegisters = 56;
constexpr int32_t kGroupThreads = 128;
constexpr int32_t kStepsATile = 4;
constexpr int32_t kStepUnits = 2;
constexpr int32_t kHalfTileBytes = kTileBytes / 2;

struct Shared {
  uint8_t stages[kRingBytes];
  uint8_t staging[2][2][kStagingBytes];
  float token_scale[2][kTileTokens];
  uint64_t full[kMaxStages];
  uint64_t empty[kMaxStages];
};

class Ring {
 public:
  __device__ explicit Ring(const Product& product)
      : stage_bytes_(kTileBytes + product.tile_tokens * kTileRowBytes),
        num_stages_(min(kMaxStages, kRingBytes / stage_bytes_)) {}

  __device__ void advance() {
    if (++stage != num_stages_) return;
    stage = 0;
    parity ^= 1;
  }

  __device__ uint8_t* memory(Shared& shared) const {
    return shared.stages + stage * stage_bytes_;
  }

  int32_t stage = 0;
  uint32_t parity = 0;

 private:
  int32_t stage_bytes_;
  int32_t num_stages_;
};

struct Fp8 {
  template <int32_t columns>
  using Multiply = ptx::WgmmaE4m3<columns>;
  static constexpr int32_t kTileColumns = kTileRowBytes;
};

struct Bf16 {
  template <int32_t columns>
  using Multiply = ptx::WgmmaBf16<columns>;
  static constexpr int32_t kTileColumns = kTileRowBytes / 2;
};

__device__ inline void release(Shared& shared, int32_t stage) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x) % kGroupThreads;
  if (thread % 32 == 0 && thread / 32 < kClusterSize)
    ptx::release_to_peer(ptx::peer_address(&shared.empty[stage],
                                           static_cast<uint32_t>(thread / 32)));
}

template <typename Type, int32_t columns>
__device__ inline void multiply_tile(float (&sum)[columns / 2],
                                     uint64_t weights, uint64_t tokens,
                                     bool accumulate) {
#pragma unroll
  for (int32_t step = 0; step < kStepsATile; ++step)
    Type::template Multiply<columns>::multiply(sum, weights + step * kStepUnits,
                                               tokens + step * kStepUnits,
                                               accumulate || step > 0);
}

template <typename Type, int32_t columns>
__device__ inline void accumulate_whole(Shared& shared, Ring& ring,
                                        float (&sums)[kTileTokens / 2],
                                        int32_t group, int32_t num_tiles) {
  auto& sum = reinterpret_cast<float (&)[columns / 2]>(sums);
  int32_t previous = 0;
  for (int32_t tile = 0; tile < num_tiles; ++tile) {
    const uint32_t stage = ptx::shared_address(ring.memory(shared));
    ptx::barrier_wait(&shared.full[ring.stage], ring.parity);
    ptx::wgmma_fence();
    multiply_tile<Type, columns>(
        sum,
        ptx::swizzled_descriptor(stage +
                                 static_cast<uint32_t>(group * kHalfTileBytes)),
        ptx::swizzled_descriptor(stage + kTileBytes), tile > 0);
    ptx::wgmma_commit();
    if (tile > 0) {
      ptx::wgmma_wait<1>();
      release(shared, previous);
    }
    previous = ring.stage;
    ring.advance();
  }
  ptx::wgmma_wait<0>();
  ptx::hold(sum);
  release(shared, previous);
}

template <typename Type, int32_t columns>
__device__ inline void accumulate_promoted(Shared& shared, Ring& ring,
                                           float (&sums)[kTileTokens / 2],
                                           int32_t group, int32_t num_tiles) {
  constexpr int32_t kHalf = columns / 2;
#pragma unroll
  for (int32_t i = 0; i < columns / 2; ++i) sums[i] = 0.0f;
  for (int32_t tile = 0; tile < num_tiles; ++tile) {
    const uint32_t stage = ptx::shared_address(ring.memory(shared));
    const uint64_t weights = ptx::swizzled_descriptor(
        stage + static_cast<uint32_t>(group * kHalfTileBytes));
    const uint64_t tokens = ptx::swizzled_descriptor(stage + kTileBytes);
    ptx::barrier_wait(&shared.full[ring.stage], ring.parity);
#pragma unroll
    for (int32_t half = 0; half < 2; ++half) {
      float part[kHalf / 2];
      ptx::wgmma_fence();
      multiply_tile<Type, kHalf>(
          part, weights, tokens + half * kHalf * (kTileRowBytes / 16), false);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::hold(part);
      if (half == 1) release(shared, ring.stage);
#pragma unroll
      for (int32_t i = 0; i < kHalf / 2; ++i)
        sums[half * (kHalf / 2) + i] += part[i];
    }
    ring.advance();
  }
}

template <typename Type, bool promote, int32_t columns>
__device__ inline void accumulate(Shared& shared, Ring& ring,
                                  float (&sums)[kTileTokens / 2], int32_t group,
                                  int32_t num_tiles) {
  if constexpr (promote)
    accumulate_promoted<Type, columns>(shared, ring, sums, group, num_tiles);
  else
    accumulate_whole<Type, columns>(shared, ring, sums, group, num_tiles);
}

template <typename Type, bool promote, int32_t columns>
__device__ inline void accumulate_tokens(Shared& shared, Ring& ring,
                                         float (&sums)[kTileTokens / 2],
                                         int32_t group, int32_t num_tiles,
                                         int32_t num_tokens) {
  if constexpr (columns > kWidthStep) {
    if (num_tokens <= columns - kWidthStep)
      return accumulate_tokens<Type, promote, columns - kWidthStep>(
          shared, ring, sums, group, num_tiles, num_tokens);
  }
  accumulate<Type, promote, columns>(shared, ring, sums, group, num_tiles);
}

__device__ inline int32_t num_slices(const Tile& tile) {
  return (tile.num_tokens + kSliceTokens - 1) / kSliceTokens;
}

template <typename Type>
__device__ inline void load_tile(Shared& shared, Ring& ring,
                                 const CUtensorMap* tokens,
                                 const Product& product, const Tile& tile,
                                 int32_t rank) {
  const int32_t slices = num_slices(tile);
  const int32_t row_tile =
      min(tile.row_pair * kClusterSize + rank, product.num_row_tiles - 1);
  const uint8_t* weights =
      product.weights + tile.expert * product.expert_stride +
      int64_t{row_tile} * product.num_column_tiles * kTileBytes;
  for (int32_t column = 0; column < product.num_column_tiles; ++column) {
    uint8_t* stage = ring.memory(shared);
    uint64_t* full = &shared.full[ring.stage];
    ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    ptx::barrier_expect(
        full, static_cast<uint32_t>(kTileBytes + slices * kSliceBytes));
    ptx::bulk_copy(stage, weights + int64_t{column} * kTileBytes, kTileBytes,
                   full);
    for (int32_t slice = rank; slice < slices; slice += kClusterSize)
      ptx::tensor_copy_multicast(stage + kTileBytes + slice * kSliceBytes,
                                 tokens, column * Type::kTileColumns,
                                 tile.token_begin + slice * kSliceTokens, full,
                                 (1 << kClusterSize) - 1);
    ring.advance();
  }
}

template <typename Type>
__device__ inline void produce(Shared& shared, const CUtensorMap* tokens,
                               const Product& product, int32_t rank) {
  if (threadIdx.x != kNumConsumers) return;
  ptx::tensor_prefetch(tokens);
  Schedule schedule(product);
  Ring ring(product);
  Tile tile;
  while (schedule.next(tile))
    load_tile<Type>(shared, ring, tokens, product, tile, rank);
}

template <typename Type, bool promote, Output output>
__device__ inline void consume(Shared& shared, const Product& product,
                               int32_t rank) {
  const int32_t group =
      __shfl_sync(~0u, static_cast<int32_t>(threadIdx.x) / kGroupThreads, 0);
  Schedule schedule(product);
  Ring ring(product);
  Tile tile;
  float sums[kTileTokens / 2];
  while (schedule.next(tile)) {
    const Place place =
        place_of(product, tile, tile.row_pair * kClusterSize + rank, group);
    const Scales scales = load_scales(product, tile, place);
    accumulate_tokens<Type, promote, kTileTokens>(
        shared, ring, sums, group, product.num_column_tiles, tile.num_tokens);
    share_token_scales(scales, shared.token_scale[group], group);
    store_tokens<output>(product, tile, place, scales, sums,
                         shared.token_scale[group], shared.staging[group],
                         group);
  }
}

template <typename Type, bool promote, Output output>
__global__ __launch_bounds__(kNumThreads, 1) void product_kernel(
    const __grid_constant__ CUtensorMap tokens,
    const __grid_constant__ Product product) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int32_t rank = static_cast<int32_t>(ptx::cluster_rank());
  if (threadIdx.x == 0) {
    for (int32_t stage = 0; stage < kMaxStages; ++stage) {
      ptx::barrier_init(&shared.full[stage], 1);
      ptx::barrier_init(&shared.empty[stage], 2 * kClusterSize);
    }
    ptx::barrier_init_fence();
  }
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  __syncthreads();
  ptx::cluster_arrive();
  ptx::cluster_wait();
  if (threadIdx.x >= kNumConsumers) {
    ptx::shrink_registers<kProducerRegisters>();
    produce<Type>(shared, &tokens, product, rank);
  } else {
    ptx::grow_registers<kConsumerRegisters>();
    consume<Type, promote, output>(shared, product, rank);
  }
  __syncwarp();
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

template <typename Type, bool promote, Output output>
void launch_product(const char* where, const Context& context,
                    const CUtensorMap& tokens, const Product& product) {
  LaunchShape shape;
  const int64_t pairs = ceil_divide(product.num_row_tiles, kClusterSize);
  const int64_t clusters = context.num_multiprocessors / kClusterSize;
  const int64_t items =
      pairs * ceil_divide(product.num_tokens, product.tile_tokens);
  const bool grouped = product.expert_begin != nullptr;
  shape.grid = dim3(static_cast<uint32_t>(
      (grouped || items > clusters ? clusters : items) * kClusterSize));
  shape.block = dim3(kNumThreads);
  shape.shared_bytes = sizeof(Shared);
  shape.cluster = kClusterSize;
  launch(where, context.stream, shape, product_kernel<Type, promote, output>,
         tokens, product);
}

}

#endif
