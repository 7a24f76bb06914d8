#include <cuda_bf16.h>

#include <algorithm>
#include <string>

#include "native/base/cuda.hpp"
#include "native/kernels/attention/context_chunks.hpp"
#include "native/kernels/attention/decode_attention.hpp"
#include "native/kernels/layout.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "native/ptx/warp_matrix.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kWarps = 4;
constexpr int32_t kComputeThreads = kWarps * 32;
constexpr int32_t kThreads = kComputeThreads + 32;
constexpr int32_t kGroupRows = kMaxGroupHeads;
constexpr int32_t kHalfBlockBytes = kBlockTokens * kHalfBytes;
constexpr int32_t kHalfDims = kHalfBytes / 2;
constexpr int32_t kRingBytes = 96 * 1024;
constexpr int32_t kSegmentsOfLaunch = 1024;
constexpr int32_t kBlocksPerMultiprocessor = 2;
constexpr int32_t kComputeBarrier = 1;
constexpr float kLog2E = 1.4426950408889634f;

struct Arguments {
  const __nv_bfloat16* query;
  __nv_bfloat16* output;
  const uint8_t* pages;
  const int32_t* query_begin;
  const int32_t* context_length;
  const int32_t* table_row;
  const int32_t* page_table;
  int32_t page_table_stride;
  int32_t num_segments;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t group;
  int32_t head_dim;
  int32_t page_size;
  float scale;
  int32_t* arrivals;
  float* sums;
  float2* weights;
};

template <int32_t halves>
struct Shape {
  static constexpr int32_t kDims = halves * kHalfDims;
  static constexpr int32_t kBlockBytes = 2 * halves * kHalfBlockBytes;
  static constexpr int32_t kStages = kRingBytes / kBlockBytes / kWarps * kWarps;
  static constexpr int32_t kMergeStride = kDims + 8;
};

template <int32_t halves>
struct Shared {
  uint8_t ring[Shape<halves>::kStages][Shape<halves>::kBlockBytes];
  float merged[kGroupRows * Shape<halves>::kMergeStride];
  float2 warp_weights[kWarps][kGroupRows];
  uint64_t full[Shape<halves>::kStages];
  uint64_t empty[Shape<halves>::kStages];
  int32_t is_last;
  int32_t first_chunk[1];
};

template <int32_t stages>
struct Cursor {
  int32_t slot = 0;
  uint32_t parity = 0;

  __device__ void advance(int32_t blocks) {
    slot += blocks;
    while (slot >= stages) {
      slot -= stages;
      parity ^= 1;
    }
  }
};

struct Item {
  int32_t segment;
  int32_t kv_head;
  int32_t chunk;
  int32_t num_chunks;
  int32_t begin;
  int32_t end;
  int32_t partial;

  __device__ int32_t num_blocks() const {
    return (end - begin + kBlockTokens - 1) / kBlockTokens;
  }
};

__device__ int32_t segment_of(const int32_t* first_chunk, int32_t num_segments,
                              int32_t chunk) {
  int32_t low = 0;
  int32_t high = num_segments;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (first_chunk[middle] <= chunk)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__device__ Item item_at(const Arguments& args, const int32_t* first_chunk,
                        int32_t index) {
  const int32_t chunk = index / args.num_kv_heads;
  Item item;
  item.segment = segment_of(first_chunk, args.num_segments, chunk);
  item.kv_head = index % args.num_kv_heads;
  item.chunk = chunk - first_chunk[item.segment];
  item.num_chunks =
      first_chunk[item.segment + 1] - first_chunk[item.segment];
  const int32_t context = args.context_length[item.segment];
  item.begin = chunk_begin(item.chunk);
  item.end = max(min(chunk_begin(item.chunk + 1), context), item.begin);
  item.partial = index;
  return item;
}

__device__ void list_chunks(const Arguments& args, int32_t* first_chunk) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  int32_t total = 0;
  for (int32_t base = 0; base < args.num_segments; base += 32) {
    const int32_t segment = base + lane;
    const int32_t own = segment < args.num_segments
                            ? num_chunks(args.context_length[segment])
                            : 0;
    int32_t sum = own;
    for (int32_t step = 1; step < 32; step *= 2) {
      const int32_t before = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += before;
    }
    if (segment < args.num_segments) first_chunk[segment] = total + sum - own;
    total += __shfl_sync(~0u, sum, 31);
  }
  if (lane == 0) first_chunk[args.num_segments] = total;
}

struct BlockAddress {
  const uint8_t* head_pages;
  int64_t page_stride;
};

template <int32_t halves>
__device__ const uint8_t* block_at(const Arguments& args, const Item& item,
                                   int32_t block) {
  const int32_t token = item.begin + block * kBlockTokens;
  const int32_t* table =
      args.page_table +
      int64_t{args.table_row[item.segment]} * args.page_table_stride;
  const int64_t page = table[token / args.page_size];
  const int64_t blocks_of_page = args.page_size / kBlockTokens;
  const int64_t index =
      (page * args.num_kv_heads + item.kv_head) * blocks_of_page +
      token % args.page_size / kBlockTokens;
  return args.pages + index * Shape<halves>::kBlockBytes;
}

template <int32_t halves>
__device__ void stream_item(const Arguments& args, Shared<halves>& shared,
                            const Item& item,
                            Cursor<Shape<halves>::kStages>& cursor,
                            bool& has_waited) {
  using S = Shape<halves>;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t num_blocks = item.num_blocks();
  for (int32_t batch = 0; batch < num_blocks; batch += 32) {
    const uint8_t* source =
        block_at<halves>(args, item, min(batch + lane, num_blocks - 1));
    const int32_t in_batch = min(32, num_blocks - batch);
    for (int32_t first = 0; first < in_batch; first += kWarps) {
      const int32_t count = min(kWarps, in_batch - first);
      const uint8_t* mine = reinterpret_cast<const uint8_t*>(__shfl_sync(
          ~0u, reinterpret_cast<unsigned long long>(source), first + lane));
      const bool is_newest = item.chunk + 1 == item.num_chunks &&
                             batch + first + count == num_blocks;
      if (is_newest && !has_waited) {
        ptx::wait_for_predecessor();
        has_waited = true;
      }
      if (lane < count) {
        Cursor<S::kStages> own = cursor;
        own.advance(lane);
        ptx::barrier_wait(&shared.empty[own.slot], own.parity ^ 1);
        ptx::barrier_expect(&shared.full[own.slot], S::kBlockBytes);
        ptx::bulk_copy(shared.ring[own.slot], mine, S::kBlockBytes,
                       &shared.full[own.slot], ptx::kEvictFirst);
      }
      __syncwarp();
      cursor.advance(count);
    }
  }
}

template <int32_t halves>
struct State {
  float sums[halves * 8][4];
  float top[2];
  float total[2];
};

__device__ uint32_t load_pair(const __nv_bfloat16* row, int32_t dim,
                              int32_t head_dim) {
  if (dim >= head_dim) return 0;
  if (head_dim % 2 == 0) return *reinterpret_cast<const uint32_t*>(row + dim);
  const auto* bits = reinterpret_cast<const uint16_t*>(row);
  const uint32_t high = dim + 1 < head_dim ? bits[dim + 1] : 0;
  return high << 16 | bits[dim];
}

template <int32_t halves>
__device__ void load_query(const Arguments& args, const Item& item,
                           uint32_t (&query)[halves * 4][4]) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int64_t token = args.query_begin[item.segment];
  const __nv_bfloat16* rows =
      args.query +
      (token * args.num_heads + item.kv_head * args.group) * args.head_dim;
#pragma unroll
  for (int32_t step = 0; step < halves * 4; ++step) {
#pragma unroll
    for (int32_t part = 0; part < 4; ++part) {
      const int32_t head = lane / 4 + part % 2 * 8;
      const int32_t dim = step * 16 + lane % 4 * 2 + part / 2 * 8;
      query[step][part] =
          head < args.group
              ? load_pair(rows + int64_t{head} * args.head_dim, dim,
                          args.head_dim)
              : 0;
    }
  }
}

template <int32_t halves>
__device__ void score_block(const uint32_t (&query)[halves * 4][4],
                            uint32_t keys, float (&scores)[2][4]) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t token = lane % 8 + lane / 16 * 8;
  const int32_t chunk = lane / 8 % 2;
  float odd[2][4] = {};
#pragma unroll
  for (int32_t step = 0; step < halves * 4; ++step) {
    const int32_t byte = step % 4 * 32 + chunk * kChunkBytes;
    const ptx::Fragments key = ptx::load_matrices(
        keys + step / 4 * kHalfBlockBytes + swizzle(token, byte));
    auto& sum = step % 2 == 0 ? scores : odd;
    ptx::multiply_bf16(sum[0], query[step], key.at[0], key.at[1]);
    ptx::multiply_bf16(sum[1], query[step], key.at[2], key.at[3]);
  }
#pragma unroll
  for (int32_t i = 0; i < 8; ++i) scores[i / 4][i % 4] += odd[i / 4][i % 4];
}

__device__ void scale_and_mask(float (&scores)[2][4], float scale,
                               int32_t num_valid) {
  const int32_t column = static_cast<int32_t>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int32_t i = 0; i < 8; ++i) {
    const int32_t token = i / 4 * 8 + column + i % 2;
    float& score = scores[i / 4][i % 4];
    score = token < num_valid ? score * scale : -INFINITY;
  }
}

__device__ float over_row(float value, bool maximum) {
  for (int32_t step = 1; step < 4; step *= 2) {
    const float other = __shfl_xor_sync(~0u, value, step);
    value = maximum ? fmaxf(value, other) : value + other;
  }
  return value;
}

template <int32_t halves>
__device__ void weigh(float (&scores)[2][4], State<halves>& state) {
#pragma unroll
  for (int32_t row = 0; row < 2; ++row) {
    const int32_t a = row * 2;
    const int32_t b = a + 1;
    const float top =
        over_row(fmaxf(fmaxf(scores[0][a], scores[0][b]),
                       fmaxf(scores[1][a], scores[1][b])),
                 true);
    const float raised = fmaxf(state.top[row], top);
    const float factor = ptx::power_of_two(state.top[row] - raised);
    state.top[row] = raised;
    float sum = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      float& score = scores[i / 2][a + i % 2];
      score = ptx::power_of_two(score - raised);
      sum += score;
    }
    state.total[row] = state.total[row] * factor + sum;
#pragma unroll
    for (int32_t tile = 0; tile < halves * 8; ++tile) {
      state.sums[tile][a] *= factor;
      state.sums[tile][b] *= factor;
    }
  }
}

__device__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <int32_t halves>
__device__ void add_values(const float (&weights)[2][4], uint32_t values,
                           State<halves>& state) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t token = lane % 16;
  const int32_t chunk = lane / 16;
  const uint32_t packed[4] = {
      pack(weights[0][0], weights[0][1]), pack(weights[0][2], weights[0][3]),
      pack(weights[1][0], weights[1][1]), pack(weights[1][2], weights[1][3])};
#pragma unroll
  for (int32_t pair = 0; pair < halves * 4; ++pair) {
    const int32_t byte = pair % 4 * 32 + chunk * kChunkBytes;
    const ptx::Fragments value = ptx::load_transposed_matrices(
        values + pair / 4 * kHalfBlockBytes + swizzle(token, byte));
    ptx::multiply_bf16(state.sums[2 * pair], packed, value.at[0], value.at[1]);
    ptx::multiply_bf16(state.sums[2 * pair + 1], packed, value.at[2],
                       value.at[3]);
  }
}

template <int32_t halves>
__device__ void clear_values(uint8_t* block, int32_t num_valid) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t half = 0; half < halves; ++half) {
    uint8_t* values = block + (halves + half) * kHalfBlockBytes;
    for (int32_t token = num_valid; token < kBlockTokens; ++token)
      reinterpret_cast<uint32_t*>(values + token * kHalfBytes)[lane] = 0;
  }
  __syncwarp();
}

template <int32_t halves>
__device__ void attend_block(const Arguments& args, uint8_t* block,
                             const uint32_t (&query)[halves * 4][4],
                             int32_t num_valid, State<halves>& state) {
  const uint32_t keys = ptx::shared_address(block);
  float scores[2][4] = {};
  score_block<halves>(query, keys, scores);
  scale_and_mask(scores, args.scale, num_valid);
  if (num_valid < kBlockTokens) clear_values<halves>(block, num_valid);
  weigh<halves>(scores, state);
  add_values<halves>(scores, keys + halves * kHalfBlockBytes, state);
}

template <int32_t halves>
__device__ void attend_item(const Arguments& args, Shared<halves>& shared,
                            const Item& item,
                            Cursor<Shape<halves>::kStages> cursor,
                            State<halves>& state) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  uint32_t query[halves * 4][4];
  load_query<halves>(args, item, query);
#pragma unroll
  for (int32_t i = 0; i < halves * 32; ++i) state.sums[i / 4][i % 4] = 0.0f;
  state.top[0] = state.top[1] = -INFINITY;
  state.total[0] = state.total[1] = 0.0f;
  const int32_t num_blocks = item.num_blocks();
  cursor.advance(warp);
  for (int32_t block = warp; block < num_blocks; block += kWarps) {
    ptx::barrier_wait(&shared.full[cursor.slot], cursor.parity);
    const int32_t num_valid = item.end - item.begin - block * kBlockTokens;
    attend_block<halves>(args, shared.ring[cursor.slot], query, num_valid,
                         state);
    if (num_valid < kBlockTokens) ptx::proxy_fence();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::barrier_arrive(&shared.empty[cursor.slot]);
    cursor.advance(kWarps);
  }
  state.total[0] = over_row(state.total[0], false);
  state.total[1] = over_row(state.total[1], false);
}

__device__ float relative_weight(float top, float highest) {
  return top == -INFINITY ? 0.0f : ptx::power_of_two(top - highest);
}

template <int32_t halves>
__device__ float2 share_weights(Shared<halves>& shared,
                                const State<halves>& state,
                                float (&factor)[2]) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  if (lane % 4 < 2) {
    const int32_t part = lane % 4;
    shared.warp_weights[warp][lane / 4 + part * 8] =
        part == 0 ? make_float2(state.top[0], state.total[0])
                  : make_float2(state.top[1], state.total[1]);
  }
  ptx::meet<kComputeBarrier, kComputeThreads>();
  const int32_t row = static_cast<int32_t>(threadIdx.x) % kGroupRows;
  float highest = -INFINITY;
  for (int32_t i = 0; i < kWarps; ++i)
    highest = fmaxf(highest, shared.warp_weights[i][row].x);
  float total = 0.0f;
  for (int32_t i = 0; i < kWarps; ++i) {
    const float2 weight = shared.warp_weights[i][row];
    total += weight.y * relative_weight(weight.x, highest);
  }
  for (int32_t part = 0; part < 2; ++part) {
    const float top = __shfl_sync(~0u, highest, lane / 4 + part * 8);
    factor[part] = relative_weight(state.top[part], top);
  }
  return make_float2(highest, total);
}

template <int32_t halves>
__device__ void merge_warps(Shared<halves>& shared, const State<halves>& state,
                            const float (&factor)[2]) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t turn = 0; turn < kWarps; ++turn) {
    if (warp == turn) {
#pragma unroll
      for (int32_t i = 0; i < halves * 16; ++i) {
        const int32_t part = i % 2;
        const int32_t row = lane / 4 + part * 8;
        const int32_t dim = i / 2 * 8 + lane % 4 * 2;
        auto* place = reinterpret_cast<float2*>(
            &shared.merged[row * Shape<halves>::kMergeStride + dim]);
        const float2 before = turn == 0 ? make_float2(0, 0) : *place;
        *place =
            make_float2(before.x + state.sums[i / 2][part * 2] * factor[part],
                        before.y +
                            state.sums[i / 2][part * 2 + 1] * factor[part]);
      }
    }
    ptx::meet<kComputeBarrier, kComputeThreads>();
  }
}

__device__ void store_output(const Arguments& args, const Item& item,
                             int32_t row, int32_t dim, float4 values) {
  const int64_t token = args.query_begin[item.segment];
  __nv_bfloat16* place =
      args.output +
      (token * args.num_heads + item.kv_head * args.group + row) *
          args.head_dim +
      dim;
  if (args.head_dim % 4 == 0) {
    if (dim < args.head_dim)
      *reinterpret_cast<uint2*>(place) =
          make_uint2(pack(values.x, values.y), pack(values.z, values.w));
    return;
  }
  const float each[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
  for (int32_t i = 0; i < 4; ++i)
    if (dim + i < args.head_dim) place[i] = __float2bfloat16(each[i]);
}

__device__ float4 times(float4 values, float factor) {
  return make_float4(values.x * factor, values.y * factor, values.z * factor,
                     values.w * factor);
}

__device__ float inverse_total(float total) {
  return total > 0.0f ? 1.0f / total : total == 0.0f ? 0.0f : total;
}

template <int32_t halves>
__device__ void store_item(const Arguments& args, Shared<halves>& shared,
                           const Item& item, float2 weight) {
  using S = Shape<halves>;
  constexpr int32_t kQuads = S::kDims / 4;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int64_t base = int64_t{item.partial} * args.group;
  for (int32_t i = thread; i < args.group * kQuads; i += kComputeThreads) {
    const int32_t row = i / kQuads;
    const int32_t dim = i % kQuads * 4;
    const float4 values = *reinterpret_cast<const float4*>(
        &shared.merged[row * S::kMergeStride + dim]);
    if (item.num_chunks == 1) {
      const float total = shared.warp_weights[0][row].y;
      store_output(args, item, row, dim, times(values, inverse_total(total)));
    } else {
      __stcg(reinterpret_cast<float4*>(args.sums + (base + row) * S::kDims +
                                       dim),
             values);
    }
  }
  if (item.num_chunks > 1 && thread < args.group)
    __stcg(args.weights + base + thread, weight);
}

template <int32_t halves>
__device__ bool is_last_chunk(const Arguments& args, Shared<halves>& shared,
                              const Item& item) {
  ptx::meet<kComputeBarrier, kComputeThreads>();
  if (threadIdx.x == 0) {
    int32_t* arrivals = args.arrivals +
                        int64_t{item.segment} * args.num_kv_heads +
                        item.kv_head;
    __threadfence();
    const int32_t before = atomicAdd(arrivals, 1);
    shared.is_last = before + 1 == item.num_chunks;
    if (shared.is_last) *arrivals = 0;
    __threadfence();
  }
  ptx::meet<kComputeBarrier, kComputeThreads>();
  return shared.is_last != 0;
}

template <int32_t halves>
__device__ void combine_chunks(const Arguments& args, const Item& item) {
  constexpr int32_t kDims = Shape<halves>::kDims;
  constexpr int32_t kQuads = kDims / 4;
  const int64_t first = int64_t{item.partial} -
                        int64_t{item.chunk} * args.num_kv_heads;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < args.group * kQuads;
       i += kComputeThreads) {
    const int32_t row = i / kQuads;
    const int32_t dim = i % kQuads * 4;
    float highest = -INFINITY;
#pragma unroll 8
    for (int32_t chunk = 0; chunk < item.num_chunks; ++chunk) {
      const int64_t partial =
          (first + int64_t{chunk} * args.num_kv_heads) * args.group + row;
      highest = fmaxf(highest, __ldcg(args.weights + partial).x);
    }
    float total = 0.0f;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int32_t chunk = 0; chunk < item.num_chunks; ++chunk) {
      const int64_t partial =
          (first + int64_t{chunk} * args.num_kv_heads) * args.group + row;
      const float2 weight = __ldcg(args.weights + partial);
      const float4 values = __ldcg(
          reinterpret_cast<const float4*>(args.sums + partial * kDims + dim));
      const float factor = ptx::power_of_two(weight.x - highest);
      total += weight.y * factor;
      sum.x += values.x * factor;
      sum.y += values.y * factor;
      sum.z += values.z * factor;
      sum.w += values.w * factor;
    }
    store_output(args, item, row, dim, times(sum, inverse_total(total)));
  }
}

template <int32_t halves>
__device__ void finish_item(const Arguments& args, Shared<halves>& shared,
                            const Item& item, const State<halves>& state) {
  float factor[2];
  const float2 weight = share_weights<halves>(shared, state, factor);
  merge_warps<halves>(shared, state, factor);
  if (threadIdx.x < kGroupRows) shared.warp_weights[0][threadIdx.x] = weight;
  ptx::meet<kComputeBarrier, kComputeThreads>();
  store_item<halves>(args, shared, item, weight);
  if (item.num_chunks > 1 && is_last_chunk<halves>(args, shared, item))
    combine_chunks<halves>(args, item);
  ptx::meet<kComputeBarrier, kComputeThreads>();
}

template <int32_t halves>
__device__ void prepare(const Arguments& args, Shared<halves>& shared) {
  if (threadIdx.x == 0) {
    for (int32_t i = 0; i < Shape<halves>::kStages; ++i) {
      ptx::barrier_init(&shared.full[i], 1);
      ptx::barrier_init(&shared.empty[i], 1);
    }
    ptx::barrier_init_fence();
  }
  if (threadIdx.x >= kComputeThreads) list_chunks(args, shared.first_chunk);
  __syncthreads();
}

template <int32_t halves>
__global__ __launch_bounds__(kThreads, halves <= 2 ? 2 : 1) void
decode_attention_kernel(Arguments args) {
  using S = Shape<halves>;
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<halves>*>(memory);
  prepare<halves>(args, shared);
  const int32_t num_items =
      shared.first_chunk[args.num_segments] * args.num_kv_heads;
  const int32_t stride = static_cast<int32_t>(gridDim.x);
  Cursor<S::kStages> cursor;
  if (threadIdx.x >= kComputeThreads) {
    bool has_waited = false;
    for (int32_t i = static_cast<int32_t>(blockIdx.x); i < num_items;
         i += stride)
      stream_item<halves>(args, shared, item_at(args, shared.first_chunk, i),
                          cursor, has_waited);
    if (!has_waited) ptx::wait_for_predecessor();
    return;
  }
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  for (int32_t i = static_cast<int32_t>(blockIdx.x); i < num_items;
       i += stride) {
    const Item item = item_at(args, shared.first_chunk, i);
    State<halves> state;
    attend_item<halves>(args, shared, item, cursor, state);
    finish_item<halves>(args, shared, item, state);
    cursor.advance(item.num_blocks());
  }
}

struct ScratchLayout {
  int64_t weights;
  int64_t sums;
  int64_t bytes;
};

ScratchLayout scratch_layout(int64_t num_segments, int64_t chunks_of_segment,
                             int64_t num_heads, int64_t num_kv_heads,
                             int32_t head_dim) {
  const int64_t rows = num_segments * chunks_of_segment * num_heads;
  const int64_t dims = num_halves(GLM_DTYPE_BF16, head_dim) * kHalfDims;
  ScratchLayout layout;
  layout.weights = round_up(num_segments * num_kv_heads * 4, 256);
  layout.sums = layout.weights + round_up(rows * 8, 256);
  layout.bytes = layout.sums + rows * dims * 4;
  return layout;
}

Arguments arguments_of(const glm_attention_args& args) {
  const glm_kv_cache& cache = *args.cache;
  const glm_segments& segments = args.segments;
  Arguments result = {};
  result.query = static_cast<const __nv_bfloat16*>(args.query);
  result.output = static_cast<__nv_bfloat16*>(args.output);
  result.pages = static_cast<const uint8_t*>(cache.data) +
                 page_offset(cache, args.layer, 0, 0);
  result.query_begin = segments.query_begin;
  result.context_length = segments.context_length;
  result.table_row = segments.table_row;
  result.page_table = segments.page_table;
  result.page_table_stride = segments.page_table_stride;
  result.num_heads = args.num_heads;
  result.num_kv_heads = cache.num_kv_heads;
  result.group = args.num_heads / cache.num_kv_heads;
  result.head_dim = cache.head_dim;
  result.page_size = cache.page_size;
  result.scale = args.scale * kLog2E;
  return result;
}

template <int32_t halves>
void launch_segments(const Context& context, const Arguments& arguments,
                     int64_t max_items) {
  LaunchShape shape;
  const int64_t resident = int64_t{context.num_multiprocessors} *
                           (halves <= 2 ? kBlocksPerMultiprocessor : 1);
  shape.grid = dim3(static_cast<uint32_t>(std::min(max_items, resident)));
  shape.block = dim3(kThreads);
  shape.shared_bytes = static_cast<int64_t>(sizeof(Shared<halves>)) +
                       int64_t{arguments.num_segments} * 4;
  launch("attention: decode", context.stream, shape,
         decode_attention_kernel<halves>, arguments);
}

using Launcher = void (*)(const Context&, const Arguments&, int64_t);

constexpr Launcher kLaunchers[] = {launch_segments<1>, launch_segments<2>,
                                   launch_segments<3>, launch_segments<4>};

int32_t most_chunks(const glm_attention_args& args) {
  const int64_t context = int64_t{args.segments.page_table_stride} *
                          args.cache->page_size;
  return num_chunks(static_cast<int32_t>(std::min<int64_t>(context, INT32_MAX)));
}

}

void decode_attention(const Context& context, const glm_attention_args& args) {
  const glm_kv_cache& cache = *args.cache;
  Arguments arguments = arguments_of(args);
  const int32_t count = args.segments.num_decode_segments;
  const int32_t chunks = most_chunks(args);
  for (int32_t begin = 0; begin < count; begin += kSegmentsOfLaunch) {
    arguments.num_segments = std::min(kSegmentsOfLaunch, count - begin);
    const ScratchLayout layout =
        scratch_layout(arguments.num_segments, chunks, args.num_heads,
                       cache.num_kv_heads, cache.head_dim);
    if (layout.bytes > context.scratch.bytes)
      throw Failure(GLM_INVALID_ARGUMENT,
                    "attention: scratch: expected at least " +
                        std::to_string(layout.bytes) + " bytes, got " +
                        std::to_string(context.scratch.bytes));
    auto* scratch = static_cast<uint8_t*>(context.scratch.data);
    arguments.arrivals = reinterpret_cast<int32_t*>(scratch);
    arguments.weights = reinterpret_cast<float2*>(scratch + layout.weights);
    arguments.sums = reinterpret_cast<float*>(scratch + layout.sums);
    const int64_t max_items =
        int64_t{arguments.num_segments} * chunks * cache.num_kv_heads;
    kLaunchers[num_halves(cache.dtype, cache.head_dim) - 1](context, arguments,
                                                            max_items);
    arguments.query_begin += arguments.num_segments;
    arguments.context_length += arguments.num_segments;
    arguments.table_row += arguments.num_segments;
  }
}

int64_t decode_attention_scratch_bytes(const glm_workspace_shape& shape) {
  const int64_t segments =
      std::min<int64_t>(shape.max_sequences, kSegmentsOfLaunch);
  return scratch_layout(segments, num_chunks(shape.max_context) + 1,
                        shape.num_heads, shape.num_kv_heads, shape.head_dim)
      .bytes;
}

}
