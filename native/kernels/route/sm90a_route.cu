#include <cuda_bf16.h>

#include <cstdint>

#include "native/base/cuda.hpp"
#include "native/kernels/route/parameters.hpp"
#include "native/kernels/route/router_product.hpp"
#include "native/kernels/route/router_stream.hpp"
#include "native/kernels/route/selection.hpp"
#include "native/kernels/route/token_rows.hpp"
#include "native/ptx/block_barrier.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/peer_store.hpp"

namespace glm::kernels::routing {
namespace {

struct Room {
  uint8_t* slabs;
  uint8_t* tokens;
  float* received;
  Barriers* barriers;
  float* bias;
  int32_t (*chosen)[kMaxTopK];
};

template <int32_t token_blocks>
__device__ Slice own_slice(const RouteParameters& p, const SharedPlan& plan) {
  int32_t rank = static_cast<int32_t>(ptx::cluster_rank());
  int32_t part = rank / p.num_shares;
  int32_t share = rank % p.num_shares;
  int32_t cluster = blockIdx.x / (kParts * p.num_shares);
  return {first_tile(p.num_column_tiles, part),
          first_tile(p.num_column_tiles, part + 1),
          cluster * token_blocks * kFragmentTokens,
          part,
          share,
          share * plan.own_fragments * kFragmentExperts};
}

template <int32_t token_blocks>
__device__ int32_t num_own_tokens(const RouteParameters& p,
                                  const Slice& slice) {
  if (slice.share != 0) return 0;
  int32_t own = 0;
#pragma unroll
  for (int32_t block = 0; block < token_blocks; ++block)
    own +=
        slice.first_token + block * kFragmentTokens + slice.part < p.num_tokens;
  return own;
}

__device__ void stream_router(const RouteParameters& p, const Slice& slice,
                              const SharedPlan& plan, const Room& room,
                              int32_t own_tokens) {
  bool is_first = threadIdx.x % kWarpThreads == 0;
  if (is_first) {
    init_barriers(p, plan, own_tokens * kParts * plan.num_padded * 4,
                  *room.barriers);
    fill_ring(p, slice, plan, room.slabs, *room.barriers);
  }
  __syncwarp();
  ptx::arrive_block(blockDim.x);
  ptx::cluster_arrive();
  ptx::wait_for_predecessor();
  if (is_first) refill_ring(p, slice, plan, room.slabs, *room.barriers);
  __syncwarp();
  ptx::cluster_wait();
}

template <int32_t token_blocks>
__device__ void multiply_f32(const RouteParameters& p, const Slice& slice,
                             const SharedPlan& plan, const Room& room,
                             Sums<token_blocks>& sums) {
  int32_t lane = threadIdx.x % kWarpThreads;
  int32_t row = threadIdx.x / kWarpThreads * kFragmentExperts;
  uint32_t tokens = ptx::shared_address(room.tokens);
  products::RingCursor place;
  for (int32_t i = 0; i < slice.count(); ++i) {
    ptx::barrier_wait(&room.barriers->full[place.stage], place.parity);
    add_f32_tile<token_blocks>(sums, room.slabs + place.stage * plan.slab_bytes,
                               tokens + i / 2 * plan.token_tile_bytes,
                               i % 2 * 64, row, lane);
    release_stage(p, slice, *room.barriers, place.stage);
    place.advance(p.num_stages);
  }
}

template <int32_t token_blocks>
__device__ Bf16Tile<token_blocks> next_bf16_tile(const RouteParameters& p,
                                                 const Slice& slice,
                                                 const SharedPlan& plan,
                                                 const Room& room, int32_t i,
                                                 products::RingCursor& place) {
  ptx::barrier_wait(&room.barriers->full[place.stage], place.parity);
  Bf16Tile<token_blocks> tile = load_bf16_tile<token_blocks>(
      ptx::shared_address(room.slabs) + place.stage * plan.slab_bytes,
      ptx::shared_address(room.tokens) + i * plan.token_tile_bytes,
      threadIdx.x / kWarpThreads * kFragmentExperts,
      threadIdx.x % kWarpThreads);
  release_stage(p, slice, *room.barriers, place.stage);
  place.advance(p.num_stages);
  return tile;
}

template <int32_t token_blocks>
__device__ void multiply_bf16(const RouteParameters& p, const Slice& slice,
                              const SharedPlan& plan, const Room& room,
                              Sums<token_blocks>& sums) {
  constexpr bool kLoadsAhead = token_blocks < kMaxTokenBlocks;
  products::RingCursor place;
  auto next = [&](int32_t i) {
    return next_bf16_tile<token_blocks>(p, slice, plan, room, i, place);
  };
  if constexpr (!kLoadsAhead) {
    for (int32_t i = 0; i < slice.count(); ++i) add_bf16_tile(sums, next(i));
  } else if (slice.count() > 0) {
    Bf16Tile<token_blocks> tile = next(0);
#pragma unroll 2
    for (int32_t i = 1; i < slice.count(); ++i) {
      Bf16Tile<token_blocks> following = next(i);
      add_bf16_tile(sums, tile);
      tile = following;
    }
    add_bf16_tile(sums, tile);
  }
}

template <int32_t token_blocks>
__device__ void send_sums(const RouteParameters& p, const Slice& slice,
                          const SharedPlan& plan, const Room& room,
                          const Sums<token_blocks>& sums) {
  int32_t lane = threadIdx.x % kWarpThreads;
  int32_t warp = threadIdx.x / kWarpThreads;
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    int32_t expert =
        slice.first_row + warp * kFragmentExperts + lane / 4 + i / 2 * 8;
    int32_t within = lane % 4 * 2 + i % 2;
    uint32_t owner = within * p.num_shares;
    uint32_t barrier = ptx::peer_address(&room.barriers->received, owner);
#pragma unroll
    for (int32_t block = 0; block < token_blocks; ++block) {
      int32_t token = slice.first_token + block * kFragmentTokens + within;
      const float* place =
          room.received +
          (slice.part * token_blocks + block) * plan.num_padded + expert;
      if (token < p.num_tokens)
        ptx::store_to_peer(ptx::peer_address(place, owner),
                           sums.at[block][0][i] + sums.at[block][1][i],
                           barrier);
    }
  }
}

template <int32_t dtype, int32_t token_blocks>
__device__ void share_sums(const RouteParameters& p, const Slice& slice,
                           const SharedPlan& plan, const Room& room) {
  ptx::cluster_arrive();
  ptx::wait_for_predecessor();
  load_tokens<token_blocks>(p, slice, plan, kTileRowBytes / dtype_bytes(dtype),
                            room.tokens);
  ptx::meet_threads<0>(blockDim.x);
  Sums<token_blocks> sums = {};
  if constexpr (dtype == GLM_DTYPE_F32)
    multiply_f32<token_blocks>(p, slice, plan, room, sums);
  else
    multiply_bf16<token_blocks>(p, slice, plan, room, sums);
  ptx::cluster_wait();
  send_sums<token_blocks>(p, slice, plan, room, sums);
}

template <int32_t token_blocks, int32_t lane_experts>
__device__ void select_own_tokens(const RouteParameters& p, const Slice& slice,
                                  const SharedPlan& plan, const Room& room) {
  int32_t warp = threadIdx.x / kWarpThreads;
  for (int32_t block = warp; block < token_blocks;
       block += plan.own_fragments) {
    int32_t token = slice.first_token + block * kFragmentTokens + slice.part;
    if (token >= p.num_tokens) return;
    float* received = room.received + block * plan.num_padded;
    select_experts<kParts, lane_experts>(p, token, room.bias, received,
                                         token_blocks * plan.num_padded,
                                         received, room.chosen[block]);
  }
}

__device__ void load_bias(const RouteParameters& p, const SharedPlan& plan,
                          float* bias) {
  int32_t num_threads = plan.own_fragments * kWarpThreads;
  for (int32_t expert = threadIdx.x; expert < p.num_experts;
       expert += num_threads)
    bias[expert] = __ldg(p.selection_bias + expert);
}

template <int32_t dtype, int32_t token_blocks, int32_t lane_experts>
__global__ __launch_bounds__(
    (lane_experts * 2 + 1) * kWarpThreads,
    1) void route_kernel(const __grid_constant__ RouteParameters p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ Barriers barriers;
  __shared__ float bias[kMaxExperts];
  __shared__ int32_t chosen[kMaxTokenBlocks][kMaxTopK];
  ptx::let_successor_start();
  SharedPlan plan(p, dtype, token_blocks);
  uint8_t* tokens = shared + p.num_stages * plan.slab_bytes;
  uint8_t* received = tokens + plan.num_token_tiles * plan.token_tile_bytes;
  Room room = {shared,    tokens, reinterpret_cast<float*>(received),
               &barriers, bias,   chosen};
  Slice slice = own_slice<token_blocks>(p, plan);
  int32_t own_tokens = num_own_tokens<token_blocks>(p, slice);
  if (static_cast<int32_t>(threadIdx.x) >= plan.own_fragments * kWarpThreads)
    return stream_router(p, slice, plan, room, own_tokens);
  load_bias(p, plan, bias);
  share_sums<dtype, token_blocks>(p, slice, plan, room);
  if (own_tokens == 0) return;
  ptx::wait_for_peers(&barriers.received, 0);
  select_own_tokens<token_blocks, lane_experts>(p, slice, plan, room);
}

template <int32_t dtype, int32_t token_blocks, int32_t lane_experts>
void launch_kernel(cudaStream_t stream, RouteParameters p) {
  auto kernel = route_kernel<dtype, token_blocks, lane_experts>;
  check(cudaFuncSetAttribute(kernel,
                             cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "route");
  SharedPlan plan(p, dtype, token_blocks);
  int32_t fixed = plan.fixed_bytes(token_blocks);
  int32_t slice_tiles =
      static_cast<int32_t>(ceil_divide(p.num_column_tiles, kParts));
  int32_t room = stages_that_fit(p, dtype, token_blocks);
  p.num_stages = min(min(slice_tiles, room), kMaxStages);
  int64_t clusters = ceil_divide(p.num_tokens, token_blocks * kFragmentTokens);
  LaunchShape shape;
  shape.cluster = kParts * p.num_shares;
  shape.grid = dim3(static_cast<uint32_t>(clusters * shape.cluster));
  shape.block = dim3((plan.own_fragments + 1) * kWarpThreads);
  shape.shared_bytes = p.num_stages * plan.slab_bytes + fixed;
  launch("route", stream, shape, kernel, p);
}

template <int32_t dtype, int32_t token_blocks>
void launch_blocks(cudaStream_t stream, const RouteParameters& p) {
  if (p.num_experts <= 4 * kWarpThreads)
    return launch_kernel<dtype, token_blocks, 4>(stream, p);
  launch_kernel<dtype, token_blocks, 8>(stream, p);
}

template <int32_t dtype>
void launch_dtype(cudaStream_t stream, RouteParameters p) {
  p.num_shares = shares_for(p.num_tokens, p.num_fragments);
  int32_t token_blocks = token_blocks_for(p.num_tokens);
  if (token_blocks == 1) return launch_blocks<dtype, 1>(stream, p);
  if (token_blocks == 2) return launch_blocks<dtype, 2>(stream, p);
  launch_blocks<dtype, kMaxTokenBlocks>(stream, p);
}

}

void launch_route(cudaStream_t stream, int32_t dtype,
                  const RouteParameters& parameters) {
  if (dtype == GLM_DTYPE_F32)
    return launch_dtype<GLM_DTYPE_F32>(stream, parameters);
  launch_dtype<GLM_DTYPE_BF16>(stream, parameters);
}

}
