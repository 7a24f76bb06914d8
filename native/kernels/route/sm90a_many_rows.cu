#include <cuda.h>

#include <cstdint>

#include "native/base/cuda.hpp"
#include "native/kernels/route/many_rows.hpp"
#include "native/kernels/route/router_product.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/tensor_copy.hpp"
#include "native/ptx/warp_arrival.hpp"
#include "native/ptx/wgmma_bf16_registers.hpp"

namespace glm::kernels::routing {
namespace {

constexpr int32_t kMostStages = 8;
constexpr int32_t kStepsAStage = 4;
constexpr uint32_t kStepUnits = 2;

struct StageBarriers {
  uint64_t full[kMostStages];
  uint64_t empty[kMostStages];
};

constexpr int32_t kBarrierBytes = sizeof(StageBarriers);

template <int32_t dtype>
struct Stage {
  static constexpr int32_t kTiles = dtype == GLM_DTYPE_F32 ? 2 : 1;

  __host__ __device__ explicit Stage(const ManyRows& router)
      : slab_bytes(router.num_rows() * kTileRowBytes),
        token_bytes(router.width * kTileRowBytes) {}

  __host__ __device__ int32_t bytes() const {
    return kTiles * slab_bytes + token_bytes;
  }

  int32_t slab_bytes;
  int32_t token_bytes;
};

class StagePlace {
 public:
  __device__ explicit StagePlace(int32_t num_stages)
      : num_stages_(num_stages) {}

  __device__ void advance() {
    if (++stage != num_stages_) return;
    stage = 0;
    parity ^= 1;
  }

  int32_t stage = 0;
  uint32_t parity = 0;

 private:
  int32_t num_stages_;
};

__device__ int32_t num_items(const ManyRows& router) {
  return kBlocksOfTile *
         static_cast<int32_t>(ceil_divide(router.num_tokens, router.width));
}

__device__ int32_t first_part(int32_t item) {
  return item % kBlocksOfTile * kPartsOfBlock;
}

template <int32_t dtype>
struct StageTiles {
  __device__ explicit StageTiles(const ManyRows& router)
      : num_column_tiles(router.num_column_tiles),
        item(static_cast<int32_t>(blockIdx.x)),
        last_item(num_items(router)) {
    enter(first_part(item));
    leave_finished();
  }

  __device__ bool is_done() const { return item >= last_item; }
  __device__ int32_t count() const {
    return min(Stage<dtype>::kTiles, end - begin);
  }

  __device__ void advance() {
    begin += Stage<dtype>::kTiles;
    leave_finished();
  }

  __device__ void enter(int32_t next) {
    part = next;
    begin = first_tile(num_column_tiles, part);
    end = first_tile(num_column_tiles, part + 1);
  }

  __device__ void leave_finished() {
    while (begin >= end && item < last_item) {
      const bool is_last = part % kPartsOfBlock == kPartsOfBlock - 1;
      if (is_last) item += static_cast<int32_t>(gridDim.x);
      enter(is_last ? first_part(item) : part + 1);
    }
  }

  int32_t num_column_tiles;
  int32_t item;
  int32_t last_item;
  int32_t part;
  int32_t begin;
  int32_t end;
};

template <int32_t dtype>
__device__ void push_weights(const ManyRows& router,
                             const StageTiles<dtype>& tiles, uint8_t* memory,
                             uint64_t* full) {
  const Stage<dtype> stage(router);
  ptx::barrier_expect(full,
                      tiles.count() * stage.slab_bytes + stage.token_bytes);
  for (int32_t tile = 0; tile < tiles.count(); ++tile) {
    for (int32_t byte = 0; byte < stage.slab_bytes; byte += kTileBytes) {
      const int64_t index =
          int64_t{byte / kTileBytes} * router.num_column_tiles + tiles.begin +
          tile;
      ptx::bulk_copy(memory + byte, router.router + index * kTileBytes,
                     min(kTileBytes, stage.slab_bytes - byte), full);
    }
    memory += stage.slab_bytes;
  }
}

template <int32_t dtype>
__device__ void push_tokens(const ManyRows& router, const CUtensorMap* tokens,
                            const StageTiles<dtype>& tiles, uint8_t* memory,
                            uint64_t* full) {
  constexpr int32_t kTileElements = kTokenTileElements / Stage<dtype>::kTiles;
  const Stage<dtype> stage(router);
  ptx::tensor_copy(memory + Stage<dtype>::kTiles * stage.slab_bytes, tokens,
                   tiles.begin * kTileElements,
                   tiles.item / kBlocksOfTile * router.width, full);
}

template <int32_t dtype>
__device__ void produce(const ManyRows& router, const CUtensorMap* tokens,
                        uint8_t* memory, StageBarriers& barriers) {
  const int32_t bytes = Stage<dtype>(router).bytes();
  StageTiles<dtype> ahead(router);
  ptx::tensor_prefetch(tokens);
  for (int32_t i = 0; i < router.num_stages && !ahead.is_done(); ++i) {
    push_weights<dtype>(router, ahead, memory + i * bytes, &barriers.full[i]);
    ahead.advance();
  }
  ptx::wait_for_predecessor();
  StageTiles<dtype> tiles(router);
  for (int32_t i = 0; i < router.num_stages && !tiles.is_done(); ++i) {
    push_tokens<dtype>(router, tokens, tiles, memory + i * bytes,
                       &barriers.full[i]);
    tiles.advance();
  }
  StagePlace place(router.num_stages);
  for (; !tiles.is_done(); tiles.advance()) {
    uint64_t* full = &barriers.full[place.stage];
    uint8_t* target = memory + place.stage * bytes;
    ptx::barrier_wait(&barriers.empty[place.stage], place.parity);
    push_weights<dtype>(router, tiles, target, full);
    push_tokens<dtype>(router, tokens, tiles, target, full);
    place.advance();
  }
}

template <int32_t width>
struct PartSums {
  float at[2][width / 2];
};

struct StageView {
  const uint8_t* slabs;
  uint32_t slab_bytes;
  uint64_t tokens;
  int32_t row;
  int32_t num_tiles;
};

struct RawWeights {
  float2 at[4];
};

__device__ RawWeights raw_weights(const uint8_t* slab, int32_t row,
                                  int32_t step) {
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarpThreads);
  RawWeights raw;
#pragma unroll
  for (int32_t i = 0; i < 4; ++i)
    raw.at[i] = *reinterpret_cast<const float2*>(
        slab + split_offset(row, step, lane, i));
  return raw;
}

template <int32_t width, int32_t steps_at_once>
__device__ void multiply_f32(const StageView& view, PartSums<width>& sums) {
  SplitWeights weights[2];
#pragma unroll
  for (int32_t first = 0; first < kStepsAStage; first += steps_at_once) {
    RawWeights raw[steps_at_once] = {};
#pragma unroll
    for (int32_t i = 0; i < steps_at_once; ++i) {
      const int32_t step = first + i;
      if (step / 2 < view.num_tiles)
        raw[i] = raw_weights(view.slabs + step / 2 * view.slab_bytes, view.row,
                             step % 2);
    }
#pragma unroll
    for (int32_t i = 0; i < steps_at_once; ++i) {
      SplitWeights& own = weights[i % 2];
      own = split_weights(raw[i].at);
      ptx::wgmma_fence();
#pragma unroll
      for (int32_t part = 2; part >= 0; --part)
        ptx::WgmmaBf16Registers<width>::multiply(
            sums.at[i % 2], own.part[part],
            view.tokens + (first + i) * kStepUnits);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
    }
  }
}

template <int32_t width>
__device__ void multiply_bf16(const StageView& view, PartSums<width>& sums) {
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarpThreads);
  const uint32_t slab = ptx::shared_address(view.slabs);
  ptx::Fragments weights[kStepsAStage] = {};
#pragma unroll
  for (int32_t step = 0; step < kStepsAStage; ++step) {
    if (view.num_tiles > 0)
      weights[step] = bf16_weights(slab, view.row, step * kStepBytes, lane);
    if (step % 2 == 0) continue;
    ptx::wgmma_fence();
#pragma unroll
    for (int32_t i = 0; i < 2; ++i)
      ptx::WgmmaBf16Registers<width>::multiply(
          sums.at[i], weights[step - 1 + i].at,
          view.tokens + (step - 1 + i) * kStepUnits);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
  }
}

template <int32_t width>
__device__ void keep_part(const ManyRows& router, float4* kept,
                          const PartSums<width>& sums) {
  const int32_t stride = router.num_groups * kGroupThreads;
#pragma unroll
  for (int32_t i = 0; i < width / 2; i += 4)
    kept[i / 4 * stride + threadIdx.x] = make_float4(
        sums.at[0][i] + sums.at[1][i], sums.at[0][i + 1] + sums.at[1][i + 1],
        sums.at[0][i + 2] + sums.at[1][i + 2],
        sums.at[0][i + 3] + sums.at[1][i + 3]);
}

template <int32_t width>
__device__ void store_parts(const ManyRows& router, int32_t item,
                            const float4* kept, const PartSums<width>& sums) {
  const int32_t stride = router.num_groups * kGroupThreads;
  const int32_t lane = threadIdx.x % kWarpThreads;
  const int32_t warp = threadIdx.x / kWarpThreads;
  if (warp >= router.num_fragments) return;
  const int32_t first = item / kBlocksOfTile * width + lane % 4 * 2;
  float* stored = router.sums +
                  (int64_t{item % kBlocksOfTile} * router.num_tokens + first) *
                      router.num_rows() +
                  warp * kFragmentExperts + lane / 4;
#pragma unroll
  for (int32_t i = 0; i < width / 2; i += 4) {
    const float4 before = kept[i / 4 * stride + threadIdx.x];
    const float value[4] = {before.x, before.y, before.z, before.w};
#pragma unroll
    for (int32_t k = 0; k < 4; ++k) {
      const int32_t token = i * 2 + k % 2;
      if (first + token < router.num_tokens)
        stored[token * router.num_rows() + k / 2 * 8] =
            value[k] + (sums.at[0][i + k] + sums.at[1][i + k]);
    }
  }
}

template <int32_t dtype, int32_t width, int32_t steps_at_once>
__device__ void add_part(const ManyRows& router, int32_t part,
                         const uint8_t* memory, StageBarriers& barriers,
                         StagePlace& place, PartSums<width>& sums) {
  constexpr int32_t kTiles = Stage<dtype>::kTiles;
  const Stage<dtype> stage(router);
  const auto warp =
      static_cast<int32_t>(__reduce_max_sync(~0u, threadIdx.x / kWarpThreads));
  const int32_t end = first_tile(router.num_column_tiles, part + 1);
#pragma unroll
  for (int32_t i = 0; i < width / 2; ++i) sums.at[0][i] = sums.at[1][i] = 0.0f;
#pragma unroll 1
  for (int32_t tile = first_tile(router.num_column_tiles, part); tile < end;
       tile += kTiles) {
    const uint8_t* slabs = memory + place.stage * stage.bytes();
    const uint32_t tokens =
        ptx::shared_address(slabs + kTiles * stage.slab_bytes);
    const StageView view = {slabs, static_cast<uint32_t>(stage.slab_bytes),
                            ptx::swizzled_descriptor(tokens),
                            warp * kFragmentExperts,
                            warp < router.num_fragments ? end - tile : 0};
    ptx::barrier_wait(&barriers.full[place.stage], place.parity);
    if constexpr (dtype == GLM_DTYPE_F32)
      multiply_f32<width, steps_at_once>(view, sums);
    else
      multiply_bf16<width>(view, sums);
    ptx::wgmma_wait<0>();
    ptx::warp_arrive(&barriers.empty[place.stage]);
    place.advance();
  }
  ptx::hold(sums.at[0]);
  ptx::hold(sums.at[1]);
}

__host__ __device__ constexpr int32_t consumer_registers(int32_t most_groups) {
  return most_groups == 2 ? 232 : most_groups == 3 ? 152 : 112;
}

__host__ __device__ constexpr int32_t producer_registers(int32_t most_groups) {
  return most_groups == 2 ? 40 : most_groups == 3 ? 56 : 32;
}

__device__ void init_barriers(const ManyRows& router, StageBarriers& barriers) {
  for (int32_t stage = 0; stage < router.num_stages; ++stage) {
    ptx::barrier_init(&barriers.full[stage], 1);
    ptx::barrier_init(&barriers.empty[stage],
                      router.num_groups * kGroupThreads);
  }
  ptx::barrier_init_fence();
  ptx::proxy_fence();
}

template <int32_t dtype, int32_t width, int32_t most_groups>
__global__ __launch_bounds__(
    (most_groups + 1) * kGroupThreads,
    1) void many_rows_kernel(const __grid_constant__ CUtensorMap tokens,
                             const __grid_constant__ ManyRows router) {
  extern __shared__ __align__(1024) uint8_t memory[];
  uint8_t* behind = memory + router.num_stages * Stage<dtype>(router).bytes();
  auto& barriers = *reinterpret_cast<StageBarriers*>(behind);
  auto* kept = reinterpret_cast<float4*>(behind + kBarrierBytes);
  ptx::let_successor_start();
  if (threadIdx.x == 0) init_barriers(router, barriers);
  __syncthreads();
  if (static_cast<int32_t>(threadIdx.x) >= router.num_groups * kGroupThreads) {
    ptx::shrink_registers<producer_registers(most_groups)>();
    if (threadIdx.x % kGroupThreads == 0)
      produce<dtype>(router, &tokens, memory, barriers);
  } else {
    ptx::grow_registers<consumer_registers(most_groups)>();
    constexpr int32_t kSteps = most_groups <= 3 ? kStepsAStage : 2;
    StagePlace place(router.num_stages);
    PartSums<width> sums;
    ptx::wait_for_predecessor();
    for (auto item = static_cast<int32_t>(blockIdx.x); item < num_items(router);
         item += static_cast<int32_t>(gridDim.x)) {
      const int32_t part = first_part(item);
      add_part<dtype, width, kSteps>(router, part, memory, barriers, place,
                                     sums);
      keep_part<width>(router, kept, sums);
      add_part<dtype, width, kSteps>(router, part + 1, memory, barriers, place,
                                     sums);
      store_parts<width>(router, item, kept, sums);
    }
  }
}

template <int32_t dtype, int32_t width, int32_t most_groups>
void launch_kernel(const Context& context, const CUtensorMap& tokens,
                   ManyRows router) {
  const int32_t consumers = router.num_groups * kGroupThreads;
  const int32_t fixed = kBarrierBytes + consumers * width / 2 * 4;
  const int32_t bytes = Stage<dtype>(router).bytes();
  router.num_stages = min(kMostStages, (kSharedLimit - fixed) / bytes);
  const int64_t items = kBlocksOfTile * ceil_divide(router.num_tokens, width);
  LaunchShape shape;
  shape.grid = dim3(
      static_cast<uint32_t>(min(items, int64_t{context.num_multiprocessors})));
  shape.block = dim3(consumers + kGroupThreads);
  shape.shared_bytes = router.num_stages * bytes + fixed;
  launch("route", context.stream, shape,
         many_rows_kernel<dtype, width, most_groups>, tokens, router);
}

template <int32_t dtype, int32_t most_groups>
void launch_width(const Context& context, const CUtensorMap& tokens,
                  const ManyRows& router) {
  constexpr int32_t kWidest = widest_of(most_groups);
  if constexpr (kWidest >= 128)
    if (router.width == 128)
      return launch_kernel<dtype, 128, most_groups>(context, tokens, router);
  if constexpr (kWidest >= 64)
    if (router.width == 64)
      return launch_kernel<dtype, 64, most_groups>(context, tokens, router);
  launch_kernel<dtype, 32, most_groups>(context, tokens, router);
}

template <int32_t dtype>
void launch_dtype(const Context& context, const CUtensorMap& tokens,
                  const ManyRows& router) {
  if (router.num_groups <= 2)
    return launch_width<dtype, 2>(context, tokens, router);
  if (router.num_groups == 3)
    return launch_width<dtype, 3>(context, tokens, router);
  launch_width<dtype, 4>(context, tokens, router);
}

}

void launch_products(const Context& context, int32_t dtype,
                     const CUtensorMap& tokens, ManyRows router) {
  if (dtype == GLM_DTYPE_F32)
    return launch_dtype<GLM_DTYPE_F32>(context, tokens, router);
  launch_dtype<GLM_DTYPE_BF16>(context, tokens, router);
}

}
