#pragma once

#include <cuda_bf16.h>

#include <algorithm>

#include "native/base/cuda.hpp"
#include "native/kernels/prefill/sm90a_store.hpp"
#include "native/kernels/prefill/sm90a_tiles.hpp"
#include "native/kernels/products/ring_cursor.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "native/ptx/tensor_copy.hpp"
#include "native/ptx/warp_arrival.hpp"
#include "native/ptx/wgmma_bf16.hpp"
#include "native/ptx/wgmma_e4m3.hpp"

namespace glm::kernels::prefill {

constexpr int32_t kRingBytes = 200 * 1024;
constexpr int32_t kMaxStages = 6;
constexpr int32_t kPreparedTiles = 2;
constexpr int32_t kNumThreads = kNumConsumers + 128;
constexpr int32_t kConsumerRegisters = 224;
constexpr int32_t kProducerRegisters = 56;
constexpr int32_t kGroupThreads = 128;
constexpr uint32_t kStepsATile = 4;
constexpr uint32_t kStepUnits = 2;
constexpr int32_t kHalfTileBytes = kTileBytes / 2;
constexpr int32_t kVectorValues = 4;
constexpr int32_t kKeptVectors = kTileTokens / 2 / kVectorValues;

__device__ inline int32_t width_of(int32_t num_tokens) {
  return (num_tokens + kWidthStep - 1) / kWidthStep * kWidthStep;
}

struct Shared {
  uint8_t stages[kRingBytes];
  uint8_t staging[2][2][kStagingBytes];
  Prepared prepared[kPreparedTiles];
  ProductMatrix matrices[2];
  uint64_t full[kMaxStages];
  uint64_t empty[kMaxStages];
  uint64_t prepared_full[kPreparedTiles];
  uint64_t prepared_empty[kPreparedTiles];
};

class Ring : public products::RingCursor {
 public:
  __device__ explicit Ring(const Product& product)
      : stage_bytes_(kTileBytes +
                     width_of(product.tile_tokens) * kTileRowBytes),
        num_stages_(min(kMaxStages, kRingBytes / stage_bytes_)) {}

  __device__ void advance() { RingCursor::advance(num_stages_); }

  __device__ uint8_t* memory(Shared& shared) const {
    return shared.stages + stage * stage_bytes_;
  }

 private:
  int32_t stage_bytes_;
  int32_t num_stages_;
};

struct Fp8 {
  template <int32_t columns>
  using Multiply = ptx::WgmmaE4m3<columns>;
  static constexpr int32_t kTileColumns = kTileRowBytes;
  static constexpr bool kPromotes = true;
  static constexpr int32_t kMostTokens = kPromotedTileTokens;
  static constexpr int32_t kMostRegisterTokens = kRegisterTileTokens;
};

struct Bf16 {
  template <int32_t columns>
  using Multiply = ptx::WgmmaBf16<columns>;
  static constexpr int32_t kTileColumns = kTileRowBytes / 2;
  static constexpr bool kPromotes = false;
  static constexpr int32_t kMostTokens = kTileTokens;
  static constexpr int32_t kMostRegisterTokens = 0;
};

template <typename Type>
using Sums = float[Type::kMostTokens / 2];

__device__ inline void release(Shared& shared, int32_t stage) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x) % kGroupThreads;
  if (thread % 32 == 0 && thread / 32 < kClusterSize)
    ptx::release_peer(ptx::peer_address(&shared.empty[stage],
                                        static_cast<uint32_t>(thread / 32)));
}

struct Operands {
  uint32_t weights;
  uint32_t tokens;
};

__device__ inline uint64_t descriptor_at(uint32_t low_bits) {
  return (ptx::kSwizzledDescriptor & 0xFFFFFFFF00000000ull) | low_bits;
}

__device__ inline Operands operands_of(Shared& shared, const Ring& ring,
                                       int32_t group) {
  const uint32_t stage = ptx::shared_address(ring.memory(shared));
  return {static_cast<uint32_t>(ptx::swizzled_descriptor(
              stage + static_cast<uint32_t>(group * kHalfTileBytes))),
          static_cast<uint32_t>(ptx::swizzled_descriptor(stage + kTileBytes))};
}

template <typename Type, int32_t columns>
__device__ inline void multiply_tile(float (&sum)[columns / 2],
                                     const Operands& operands,
                                     bool accumulate) {
  ptx::wgmma_fence();
#pragma unroll
  for (uint32_t step = 0; step < kStepsATile; ++step)
    Type::template Multiply<columns>::multiply(
        sum, descriptor_at(operands.weights + step * kStepUnits),
        descriptor_at(operands.tokens + step * kStepUnits),
        accumulate || step > 0);
  ptx::wgmma_commit();
}

template <int32_t count>
__device__ inline void clear(float (&sums)[count], int32_t begin = 0) {
#pragma unroll
  for (int32_t i = begin; i < count; ++i) sums[i] = 0.0f;
}

template <typename Type, int32_t columns>
__device__ inline void accumulate_in_place(Shared& shared, Ring& ring,
                                           float (&sum)[columns / 2],
                                           int32_t group, int32_t num_tiles) {
  int32_t previous = 0;
  ptx::hold(sum);
  for (int32_t tile = 0; tile < num_tiles; ++tile) {
    const Operands operands = operands_of(shared, ring, group);
    ptx::barrier_wait(&shared.full[ring.stage], ring.parity);
    multiply_tile<Type, columns>(sum, operands, true);
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

template <int32_t count>
__device__ inline void add(float (&sums)[count], const float (&terms)[count]) {
#pragma unroll
  for (int32_t i = 0; i < count; ++i) sums[i] += terms[i];
}

template <typename Type, int32_t columns>
__device__ inline void accumulate_promoted(Shared& shared, Ring& ring,
                                           float (&sums)[columns / 2],
                                           int32_t group, int32_t num_tiles) {
  for (int32_t tile = 0; tile < num_tiles; ++tile) {
    float product[columns / 2];
    const Operands operands = operands_of(shared, ring, group);
    ptx::barrier_wait(&shared.full[ring.stage], ring.parity);
    multiply_tile<Type, columns>(product, operands, false);
    ptx::wgmma_wait<0>();
    release(shared, ring.stage);
    ring.advance();
    ptx::hold(product);
    add(sums, product);
  }
}

template <typename Type, int32_t columns>
__device__ inline void accumulate_part(Shared& shared, Ring& ring,
                                       float (&sum)[columns / 2], int32_t group,
                                       int32_t num_tiles) {
  clear(sum);
  if constexpr (Type::kPromotes)
    accumulate_promoted<Type, columns>(shared, ring, sum, group, num_tiles);
  else
    accumulate_in_place<Type, columns>(shared, ring, sum, group, num_tiles);
}

__device__ inline float4* kept_vectors(const Product& product) {
  return reinterpret_cast<float4*>(product.kept) +
         blockIdx.x * (kKeptVectors * kNumConsumers) + threadIdx.x;
}

template <int32_t count>
__device__ inline void keep(const Product& product, const float (&sum)[count]) {
  float4* kept = kept_vectors(product);
#pragma unroll
  for (int32_t i = 0; i < count / kVectorValues; ++i) {
    const float* values = sum + i * kVectorValues;
    __stcg(kept + i * kNumConsumers,
           make_float4(values[0], values[1], values[2], values[3]));
  }
}

template <int32_t count>
__device__ inline void add_kept(const Product& product, float (&sum)[count]) {
  const float4* kept = kept_vectors(product);
#pragma unroll
  for (int32_t i = 0; i < count / kVectorValues; ++i) {
    const float4 part = __ldcg(kept + i * kNumConsumers);
    float* values = sum + i * kVectorValues;
    values[0] = part.x + values[0];
    values[1] = part.y + values[1];
    values[2] = part.z + values[2];
    values[3] = part.w + values[3];
  }
}

template <typename Type, int32_t columns>
__device__ inline void accumulate_parts_in_registers(Shared& shared, Ring& ring,
                                                     const TileParts& parts,
                                                     Sums<Type>& sums,
                                                     int32_t group) {
  auto& sum = reinterpret_cast<float (&)[columns / 2]>(sums);
  accumulate_part<Type, columns>(shared, ring, sum, group, parts.num_tiles(0));
  for (int32_t i = 1; i < parts.count; ++i) {
    float part[columns / 2];
    accumulate_part<Type, columns>(shared, ring, part, group,
                                   parts.num_tiles(i));
    add(sum, part);
  }
  clear(sums, columns / 2);
}

template <typename Type, int32_t columns>
__device__ inline void accumulate_parts_in_scratch(Shared& shared, Ring& ring,
                                                   const Product& product,
                                                   const TileParts& parts,
                                                   float (&sum)[columns / 2],
                                                   int32_t group) {
  for (int32_t i = 0; i < parts.count; ++i) {
    accumulate_part<Type, columns>(shared, ring, sum, group,
                                   parts.num_tiles(i));
    if (i > 0) add_kept(product, sum);
    if (i + 1 < parts.count) keep(product, sum);
  }
}

template <typename Type, Output output, int32_t columns>
__device__ inline void accumulate(Shared& shared, Ring& ring,
                                  const Product& product,
                                  const TileParts& parts, Sums<Type>& sums,
                                  int32_t group) {
  auto& sum = reinterpret_cast<float (&)[columns / 2]>(sums);
  if constexpr (output != Output::kChannels)
    accumulate_part<Type, columns>(shared, ring, sum, group,
                                   parts.num_tiles(0));
  else if constexpr (columns <= Type::kMostRegisterTokens)
    accumulate_parts_in_registers<Type, columns>(shared, ring, parts, sums,
                                                 group);
  else
    accumulate_parts_in_scratch<Type, columns>(shared, ring, product, parts,
                                               sum, group);
}

template <typename Type, Output output, int32_t columns>
__device__ inline void accumulate_tokens(Shared& shared, Ring& ring,
                                         const Product& product,
                                         const Prepared& prepared,
                                         Sums<Type>& sums, int32_t group) {
  if constexpr (columns > kWidthStep) {
    if (prepared.tile.num_tokens <= columns - kWidthStep)
      return accumulate_tokens<Type, output, columns - kWidthStep>(
          shared, ring, product, prepared, sums, group);
  }
  accumulate<Type, output, columns>(shared, ring, product, prepared.parts, sums,
                                    group);
}

template <typename Type>
__device__ inline void load_tile(Shared& shared, Ring& ring,
                                 const TokenMaps& tokens, const Tile& tile,
                                 int32_t rank) {
  const ProductMatrix& matrix = shared.matrices[tile.is_shared];
  const int32_t width = width_of(tile.num_tokens);
  const int32_t own_begin = width / kClusterSize * rank;
  const CUtensorMap* map = &tokens.of_width[width / kWidthStep - 1];
  const int32_t row_tile =
      min(tile.row_pair * kClusterSize + rank, matrix.num_row_tiles - 1);
  const uint8_t* weights =
      matrix.weights + tile.expert * matrix.expert_stride +
      int64_t{row_tile} * matrix.num_column_tiles * kTileBytes;
  const int32_t num_columns = matrix.num_column_tiles;
  for (int32_t column = 0; column < num_columns; ++column) {
    uint8_t* stage = ring.memory(shared);
    uint64_t* full = &shared.full[ring.stage];
    ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    ptx::barrier_expect(
        full, static_cast<uint32_t>(kTileBytes + width * kTileRowBytes));
    ptx::bulk_copy(stage, weights + int64_t{column} * kTileBytes, kTileBytes,
                   full);
    ptx::tensor_copy_multicast(stage + kTileBytes + own_begin * kTileRowBytes,
                               map, column * Type::kTileColumns,
                               tile.token_begin + own_begin, full,
                               (1 << kClusterSize) - 1);
    ring.advance();
  }
}

template <typename Type>
__device__ inline void produce(Shared& shared, const TokenMaps& tokens,
                               const Product& product, int32_t rank) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  if (lane * kWidthStep < product.tile_tokens)
    ptx::tensor_prefetch(&tokens.of_width[lane]);
  if (lane != 0) return;
  Schedule schedule(product);
  Ring ring(product);
  Tile tile;
  while (schedule.next(tile)) load_tile<Type>(shared, ring, tokens, tile, rank);
}

struct Slot {
  int32_t at = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    at ^= 1;
    parity ^= at == 0 ? 1 : 0;
  }
};

__device__ inline void prepare(Shared& shared, const Product& product,
                               int32_t rank) {
  Schedule schedule(product);
  Slot slot;
  for (bool more = true; more; slot.advance()) {
    Tile tile = {0, 0, 0, 0, 0};
    more = schedule.next(tile);
    const ProductMatrix& matrix = shared.matrices[tile.is_shared];
    const int32_t row_tile = tile.row_pair * kClusterSize + rank;
    const TileScales scales(product, matrix, tile, row_tile);
    const TileParts parts = parts_of(product, matrix, row_tile);
    Prepared& prepared = shared.prepared[slot.at];
    ptx::barrier_wait(&shared.prepared_empty[slot.at], slot.parity ^ 1);
    scales.store(prepared);
    if (threadIdx.x % 32 == 0) {
      prepared.tile = tile;
      prepared.parts = parts;
    }
    ptx::warp_arrive(&shared.prepared_full[slot.at]);
  }
}

template <typename Type, Output output>
__device__ inline void consume(Shared& shared, const Product& product,
                               int32_t rank) {
  const auto group =
      static_cast<int32_t>(__reduce_max_sync(~0u, threadIdx.x / kGroupThreads));
  Ring ring(product);
  Slot slot;
  int32_t turn = 0;
  Sums<Type> sums;
  while (true) {
    const Prepared& prepared = shared.prepared[slot.at];
    ptx::barrier_wait(&shared.prepared_full[slot.at], slot.parity);
    if (prepared.tile.num_tokens == 0) return;
    accumulate_tokens<Type, output, Type::kMostTokens>(shared, ring, product,
                                                       prepared, sums, group);
    store_tokens<output>(product, shared.matrices[prepared.tile.is_shared],
                         prepared, prepared.tile.row_pair * kClusterSize + rank,
                         group, sums, shared.staging[group], turn);
    ptx::warp_arrive(&shared.prepared_empty[slot.at]);
    slot.advance();
  }
}

__device__ inline void init_barriers(Shared& shared) {
  for (int32_t stage = 0; stage < kMaxStages; ++stage) {
    ptx::barrier_init(&shared.full[stage], 1);
    ptx::barrier_init(&shared.empty[stage], 2 * kClusterSize);
  }
  for (int32_t slot = 0; slot < kPreparedTiles; ++slot) {
    ptx::barrier_init(&shared.prepared_full[slot], ptx::kWarpArrivals);
    ptx::barrier_init(&shared.prepared_empty[slot], kNumConsumers);
  }
  ptx::barrier_init_fence();
}

template <typename Type, Output output>
__global__ __launch_bounds__(kNumThreads, 1) void product_kernel(
    const __grid_constant__ TokenMaps tokens,
    const __grid_constant__ Product product) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int32_t rank = static_cast<int32_t>(ptx::cluster_rank());
  if (threadIdx.x == 0) init_barriers(shared);
  if (threadIdx.x == 32) shared.matrices[0] = product.matrix;
  if (threadIdx.x == 64) shared.matrices[1] = product.shared;
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  __syncthreads();
  ptx::cluster_arrive();
  ptx::cluster_wait();
  if (threadIdx.x >= kNumConsumers) {
    ptx::shrink_registers<kProducerRegisters>();
    const int32_t warp =
        (static_cast<int32_t>(threadIdx.x) - kNumConsumers) / 32;
    if (warp == 0) produce<Type>(shared, tokens, product, rank);
    if (warp == 1) prepare(shared, product, rank);
  } else {
    ptx::grow_registers<kConsumerRegisters>();
    consume<Type, output>(shared, product, rank);
  }
  __syncwarp();
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

template <typename Type, Output output>
void launch_product(const char* where, const Context& context,
                    const TokenMaps& tokens, const Product& product) {
  LaunchShape shape;
  const int64_t pairs = product.matrix.num_row_pairs();
  const int32_t blocks =
      product.parts.is_whole()
          ? context.num_multiprocessors
          : std::min(context.num_multiprocessors, kMostKeepingBlocks);
  const int64_t clusters = blocks / kClusterSize;
  const int64_t items =
      pairs * ceil_divide(product.num_tokens, product.tile_tokens);
  const bool grouped = product.expert_begin != nullptr;
  shape.grid = dim3(static_cast<uint32_t>(
      (grouped || items > clusters ? clusters : items) * kClusterSize));
  shape.block = dim3(kNumThreads);
  shape.shared_bytes = sizeof(Shared);
  shape.cluster = kClusterSize;
  launch(where, context.stream, shape, product_kernel<Type, output>, tokens,
         product);
}

}
