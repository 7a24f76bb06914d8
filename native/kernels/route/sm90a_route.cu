#include <cuda_bf16.h>

#include <cstdint>

#include "native/base/cuda.hpp"
#include "native/kernels/route/parameters.hpp"
#include "native/kernels/route/router_product.hpp"
#include "native/kernels/route/selection.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/peer_store.hpp"
#include "native/ptx/warp_arrival.hpp"

namespace glm::kernels::routing {
namespace {

constexpr int32_t kStaticBytes = 3 * 1024;
constexpr int32_t kClustersAtOnce = 15;

struct Barriers {
  uint64_t full[kMaxStages];
  uint64_t empty[kMaxStages];
};

struct Slice {
  int32_t begin;
  int32_t end;
  int32_t first_token;
  int32_t rank;
};

template <int32_t token_blocks>
__device__ Slice own_slice(const RouteParameters& p) {
  int32_t rank = static_cast<int32_t>(ptx::cluster_rank());
  int32_t cluster = blockIdx.x / kRanks;
  return {first_tile(p.num_column_tiles, rank),
          first_tile(p.num_column_tiles, rank + 1),
          cluster * token_blocks * kFragmentTokens, rank};
}

__device__ void init_barriers(const RouteParameters& p, Barriers& barriers) {
  for (int32_t stage = 0; stage < p.num_stages; ++stage) {
    ptx::barrier_init(&barriers.full[stage], 1);
    ptx::barrier_init(&barriers.empty[stage],
                      p.num_fragments * ptx::kWarpArrivals);
  }
  ptx::barrier_init_fence();
}

__device__ void push_slab(const RouteParameters& p, uint8_t* slab,
                          int32_t slab_bytes, int32_t column, uint64_t* full) {
  ptx::barrier_expect(full, slab_bytes);
  for (int32_t done = 0; done < slab_bytes; done += kTileBytes) {
    int64_t tile = int64_t{done / kTileBytes} * p.num_column_tiles + column;
    ptx::bulk_copy(slab + done, p.router + tile * kTileBytes,
                   min(kTileBytes, slab_bytes - done), full);
  }
}

__device__ void stream_router(const RouteParameters& p, const Slice& slice,
                              uint8_t* slabs, int32_t slab_bytes,
                              Barriers& barriers) {
  int32_t stage = 0;
  uint32_t parity = 0;
  for (int32_t column = slice.begin; column < slice.end; ++column) {
    ptx::barrier_wait(&barriers.empty[stage], parity ^ 1);
    push_slab(p, slabs + stage * slab_bytes, slab_bytes, column,
              &barriers.full[stage]);
    if (++stage == p.num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

__device__ uint4 gathered_chunk(const RouteParameters& p, int32_t token,
                                int32_t element, bool is_inside) {
  if (!is_inside) return make_uint4(0, 0, 0, 0);
  const uint16_t* elements = reinterpret_cast<const uint16_t*>(p.input) +
                             int64_t{token} * p.hidden_size + element;
  uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int32_t i = 0; i < kChunkElements; ++i)
    if (element + i < p.hidden_size)
      words[i / 2] |= static_cast<uint32_t>(__ldcg(elements + i))
                      << (i % 2 * 16);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ uint4 whole_chunk(const RouteParameters& p, int32_t token,
                             int32_t element, bool is_inside) {
  const __nv_bfloat16* source =
      p.input + (is_inside ? int64_t{token} * p.hidden_size + element : 0);
  uint4 chunk = __ldcg(reinterpret_cast<const uint4*>(source));
  return is_inside ? chunk : make_uint4(0, 0, 0, 0);
}

struct ChunkPlace {
  int32_t token;
  int32_t element;
  int32_t offset;
};

template <int32_t token_blocks>
__device__ ChunkPlace chunk_place(const Slice& slice, int32_t tile_elements,
                                  int32_t row_chunks, int32_t item) {
  constexpr int32_t kRows = token_blocks * kFragmentTokens;
  constexpr int32_t kRowChunks = kTileRowBytes / kChunkBytes;
  int32_t row = item / row_chunks;
  int32_t within = item % row_chunks;
  return {slice.first_token + row,
          slice.begin * tile_elements + within * kChunkElements,
          within / kRowChunks * (kRows * kTileRowBytes) +
              swizzle(row, within % kRowChunks * kChunkBytes)};
}

template <int32_t token_blocks>
__device__ void load_tokens(const RouteParameters& p, const Slice& slice,
                            int32_t tile_elements, int32_t num_token_tiles,
                            uint8_t* tokens) {
  constexpr int32_t kAtOnce = 4;
  bool is_aligned = p.hidden_size % kChunkElements == 0 &&
                    reinterpret_cast<uint64_t>(p.input) % kChunkBytes == 0;
  int32_t num_threads = p.num_fragments * kWarpThreads;
  int32_t row_chunks = num_token_tiles * (kTileRowBytes / kChunkBytes);
  int32_t count = token_blocks * kFragmentTokens * row_chunks;
  for (int32_t base = threadIdx.x; base < count;
       base += kAtOnce * num_threads) {
    uint4 chunk[kAtOnce];
    int32_t offset[kAtOnce];
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      ChunkPlace place =
          chunk_place<token_blocks>(slice, tile_elements, row_chunks,
                                    min(base + i * num_threads, count - 1));
      bool is_inside =
          place.token < p.num_tokens && place.element < p.hidden_size;
      offset[i] = place.offset;
      chunk[i] = is_aligned
                     ? whole_chunk(p, place.token, place.element, is_inside)
                     : gathered_chunk(p, place.token, place.element, is_inside);
    }
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i)
      if (base + i * num_threads < count)
        *reinterpret_cast<uint4*>(tokens + offset[i]) = chunk[i];
  }
}

__device__ void meet_fragment_warps(const RouteParameters& p) {
  asm volatile("bar.sync 1, %0;" ::"r"(p.num_fragments * kWarpThreads)
               : "memory");
}

template <int32_t dtype, int32_t token_blocks>
__device__ void multiply_slice(const RouteParameters& p, const Slice& slice,
                               const SharedPlan& plan, const uint8_t* slabs,
                               const uint8_t* tokens, Barriers& barriers,
                               Sums<token_blocks>& sums) {
  constexpr int32_t kTilesPerTokenTile = dtype == GLM_DTYPE_F32 ? 2 : 1;
  int32_t lane = threadIdx.x % kWarpThreads;
  int32_t row = threadIdx.x / kWarpThreads * kFragmentExperts;
  int32_t stage = 0;
  uint32_t parity = 0;
  for (int32_t i = 0; i < slice.end - slice.begin; ++i) {
    const uint8_t* slab = slabs + stage * plan.slab_bytes;
    uint32_t tile = ptx::shared_address(tokens) +
                    i / kTilesPerTokenTile * plan.token_tile_bytes;
    ptx::barrier_wait(&barriers.full[stage], parity);
    if constexpr (dtype == GLM_DTYPE_F32)
      add_f32_tile<token_blocks>(sums, slab, tile, i % 2 * 64, row, lane);
    else
      add_bf16_tile<token_blocks>(sums, ptx::shared_address(slab), tile, row,
                                  lane);
    ptx::warp_arrive(&barriers.empty[stage]);
    if (++stage == p.num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

template <int32_t token_blocks>
__device__ void send_sums(const RouteParameters& p, const Slice& slice,
                          const float* received,
                          const Sums<token_blocks>& sums) {
  int32_t lane = threadIdx.x % kWarpThreads;
  int32_t warp = threadIdx.x / kWarpThreads;
  int32_t num_padded = p.num_fragments * kFragmentExperts;
#pragma unroll
  for (int32_t block = 0; block < token_blocks; ++block)
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      int32_t expert = warp * kFragmentExperts + lane / 4 + i / 2 * 8;
      int32_t owner = lane % 4 * 2 + i % 2;
      const float* place =
          received + (slice.rank * token_blocks + block) * num_padded + expert;
      ptx::put_at_peer(ptx::peer_address(place, owner),
                       sums.at[block][0][i] + sums.at[block][1][i]);
    }
}

template <int32_t token_blocks>
__device__ void select_own_tokens(const RouteParameters& p, const Slice& slice,
                                  const float* bias, const float* received) {
  int32_t lane = threadIdx.x % kWarpThreads;
  int32_t warp = threadIdx.x / kWarpThreads;
  int32_t num_padded = p.num_fragments * kFragmentExperts;
  for (int32_t block = warp; block < token_blocks; block += p.num_fragments) {
    int32_t token = slice.first_token + block * kFragmentTokens + slice.rank;
    if (token >= p.num_tokens) return;
    LaneScores lanes = score_experts(p, bias, received + block * num_padded,
                                     token_blocks * num_padded, lane);
    select_experts(p, token, lanes, lane);
  }
}

template <int32_t dtype, int32_t token_blocks>
__global__ __launch_bounds__(kMaxThreads, 1) void route_kernel(
    const __grid_constant__ RouteParameters p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ Barriers barriers;
  __shared__ float bias[kMaxExperts];
  SharedPlan plan(p, dtype, token_blocks);
  uint8_t* slabs = shared;
  uint8_t* tokens = slabs + p.num_stages * plan.slab_bytes;
  float* received = reinterpret_cast<float*>(
      tokens + plan.num_token_tiles * plan.token_tile_bytes);
  Slice slice = own_slice<token_blocks>(p);
  if (threadIdx.x == 0) init_barriers(p, barriers);
  __syncthreads();
  ptx::cluster_arrive();
  if (static_cast<int32_t>(threadIdx.x) >= p.num_fragments * kWarpThreads) {
    if (threadIdx.x % kWarpThreads == 0)
      stream_router(p, slice, slabs, plan.slab_bytes, barriers);
    __syncwarp();
    ptx::cluster_wait();
    return;
  }
  ptx::let_successor_start();
  for (int32_t expert = threadIdx.x; expert < p.num_experts;
       expert += p.num_fragments * kWarpThreads)
    bias[expert] = __ldg(p.selection_bias + expert);
  ptx::wait_for_predecessor();
  load_tokens<token_blocks>(p, slice, kTileRowBytes / dtype_bytes(dtype),
                            plan.num_token_tiles, tokens);
  meet_fragment_warps(p);
  Sums<token_blocks> sums = {};
  multiply_slice<dtype, token_blocks>(p, slice, plan, slabs, tokens, barriers,
                                      sums);
  ptx::cluster_wait();
  send_sums<token_blocks>(p, slice, received, sums);
  ptx::cluster_arrive();
  ptx::cluster_wait();
  select_own_tokens<token_blocks>(p, slice, bias, received);
}

template <int32_t dtype, int32_t token_blocks>
void launch_blocks(cudaStream_t stream, RouteParameters p) {
  SharedPlan plan(p, dtype, token_blocks);
  int32_t slice_tiles =
      static_cast<int32_t>(ceil_divide(p.num_column_tiles, kRanks));
  int32_t room =
      (kSharedLimit - kStaticBytes - plan.fixed_bytes()) / plan.slab_bytes;
  p.num_stages = min(min(slice_tiles, room), kMaxStages);
  if (p.num_stages < 1)
    throw Failure(GLM_NOT_SUPPORTED,
                  "route: hidden_size: expected rows that fit shared memory, "
                  "got " +
                      std::to_string(p.hidden_size));
  int64_t clusters = ceil_divide(p.num_tokens, token_blocks * kFragmentTokens);
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(clusters * kRanks));
  shape.block = dim3((p.num_fragments + 1) * kWarpThreads);
  shape.shared_bytes = p.num_stages * plan.slab_bytes + plan.fixed_bytes();
  shape.cluster = kRanks;
  launch("route", stream, shape, route_kernel<dtype, token_blocks>, p);
}

template <int32_t dtype>
void launch_dtype(cudaStream_t stream, const RouteParameters& p) {
  constexpr int32_t kTokensAtOnce = kClustersAtOnce * kFragmentTokens;
  if (p.num_tokens <= kTokensAtOnce) return launch_blocks<dtype, 1>(stream, p);
  if (p.num_tokens <= 2 * kTokensAtOnce)
    return launch_blocks<dtype, 2>(stream, p);
  launch_blocks<dtype, 4>(stream, p);
}

}

void launch_route(cudaStream_t stream, int32_t dtype,
                  const RouteParameters& parameters) {
  if (dtype == GLM_DTYPE_F32)
    return launch_dtype<GLM_DTYPE_F32>(stream, parameters);
  launch_dtype<GLM_DTYPE_BF16>(stream, parameters);
}

}
