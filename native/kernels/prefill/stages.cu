#include <cuda_bf16.h>

#include <algorithm>

#include "native/base/cuda.hpp"
#include "native/collectives/peer/send_ahead.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/prefill/product.hpp"
#include "native/kernels/prefill/stages.hpp"
#include "native/kernels/quantise/codes.hpp"
#include "native/kernels/rows/shape.hpp"
#include "native/ptx/bfloat16.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::prefill {
namespace {

constexpr int32_t kSortThreads = 1024;
constexpr int32_t kQuad = 4;
constexpr int32_t kRowThreads = 256;
constexpr int32_t kQuantiseThreads = 128;
constexpr int32_t kQuantiseBlocks = 12;
constexpr int32_t kCombineThreads = 512;
constexpr int32_t kHeldVectors = 3;
constexpr int32_t kChunkVectors = kChunkBytes / 4;

__device__ int32_t thread() { return static_cast<int32_t>(threadIdx.x); }

struct Tally {
  int32_t below;
  int32_t equal;
};

__device__ Tally sum_to_lane(Tally tally) {
  const int32_t lane = thread() % 32;
#pragma unroll
  for (int32_t step = 1; step < 32; step *= 2) {
    const int32_t below = __shfl_up_sync(~0u, tally.below, step);
    const int32_t equal = __shfl_up_sync(~0u, tally.equal, step);
    if (lane >= step) tally = {tally.below + below, tally.equal + equal};
  }
  return tally;
}

template <typename Visit>
__device__ void visit_choices(const Sorting& sorting, Visit&& visit) {
  const auto* quads = reinterpret_cast<const int4*>(sorting.expert_ids);
  const bool has_quads =
      reinterpret_cast<uintptr_t>(sorting.expert_ids) % sizeof(int4) == 0;
  const int32_t num_quads = has_quads ? sorting.num_choices / kQuad : 0;
#pragma unroll 4
  for (int32_t i = thread(); i < num_quads; i += kSortThreads) {
    const int4 ids = quads[i];
    visit(kQuad * i, ids.x);
    visit(kQuad * i + 1, ids.y);
    visit(kQuad * i + 2, ids.z);
    visit(kQuad * i + 3, ids.w);
  }
  for (int32_t i = kQuad * num_quads + thread(); i < sorting.num_choices;
       i += kSortThreads)
    visit(i, sorting.expert_ids[i]);
}

__device__ Tally tally_of(const Sorting& sorting, int32_t expert) {
  const int32_t wanted = sorting.local.id_of(expert);
  Tally tally = {0, 0};
  visit_choices(sorting, [&](int32_t, int32_t id) {
    tally.below += sorting.local.is_before(id, expert);
    tally.equal += id == wanted;
  });
  return tally;
}

__device__ void place_choices(const Sorting& sorting, int32_t expert,
                              int32_t position) {
  visit_choices(sorting, [&](int32_t i, int32_t id) {
    const int32_t own = sorting.local.index_of(id);
    if (own == expert) sorting.position[i] = position++;
    if (expert == 0 && own < 0) sorting.position[i] = -1;
  });
}

__global__ __launch_bounds__(kSortThreads) void sort_kernel(Sorting sorting) {
  __shared__ Tally warps[kSortThreads / 32];
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const auto expert = static_cast<int32_t>(blockIdx.x);
  const Tally own = tally_of(sorting, expert);
  const Tally until = sum_to_lane(own);
  if (thread() % 32 == 31) warps[thread() / 32] = until;
  __syncthreads();
  if (thread() < 32) warps[thread()] = sum_to_lane(warps[thread()]);
  __syncthreads();
  const Tally all = warps[kSortThreads / 32 - 1];
  const int32_t before = thread() < 32 ? 0 : warps[thread() / 32 - 1].equal;
  place_choices(sorting, expert, all.below + before + until.equal - own.equal);
  if (thread() > 0 || expert >= sorting.num_experts) return;
  sorting.begin[expert] = all.below;
  sorting.begin[expert + 1] = all.below + all.equal;
}

template <typename Unit>
__device__ void copy_to_all(const Gathering& gathering, const int32_t* position,
                            int64_t token) {
  const int64_t units =
      gathering.row_bytes / static_cast<int64_t>(sizeof(Unit));
  const auto* source = reinterpret_cast<const Unit*>(
      gathering.rows + token * gathering.row_bytes);
  for (int64_t i = thread(); i < units; i += kRowThreads) {
    const Unit value = source[i];
    for (int32_t j = 0; j < gathering.top_k; ++j)
      if (position[j] >= 0)
        reinterpret_cast<Unit*>(gathering.gathered +
                                position[j] * gathering.stride_bytes)[i] =
            value;
  }
}

__global__ __launch_bounds__(kRowThreads) void gather_kernel(
    Gathering gathering) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int64_t token = blockIdx.x;
  const int32_t* position = gathering.position + token * gathering.top_k;
  if (gathering.row_bytes % 16 == 0)
    copy_to_all<uint4>(gathering, position, token);
  else
    copy_to_all<uint8_t>(gathering, position, token);
  if (gathering.row_scale == nullptr) return;
  for (int32_t j = thread(); j < gathering.top_k; j += kRowThreads)
    if (position[j] >= 0)
      gathering.gathered_scale[position[j]] = gathering.row_scale[token];
}

__device__ float largest(float4 v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

__device__ uint32_t codes_of(float4 v, const RowQuotient& quotient) {
  const uint32_t low = encode_pair(quotient(v.x), quotient(v.y));
  const uint32_t high = encode_pair(quotient(v.z), quotient(v.w));
  return low | high << 16;
}

__device__ float largest_of_warp(float value) {
  for (int32_t step = 16; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
  return value;
}

__device__ float largest_of_block(float value, float* warps) {
  value = largest_of_warp(value);
  if (thread() % 32 == 0) warps[thread() / 32] = value;
  __syncthreads();
  float all = warps[0];
#pragma unroll
  for (int32_t i = 1; i < kQuantiseThreads / 32; ++i)
    all = fmaxf(all, warps[i]);
  return all;
}

template <bool held>
__device__ void quantise_row(const Quantising& quantising, int64_t row,
                             int32_t width, float* warps) {
  const auto vectors =
      static_cast<int32_t>(ceil_divide(width, kChunkBytes)) * kChunkVectors;
  const int32_t stored =
      min(static_cast<int32_t>(round_up(width, kTileRowBytes)),
          quantising.stride) /
      4;
  const auto* values = reinterpret_cast<const float4*>(quantising.hidden +
                                                       row * quantising.stride);
  auto* codes =
      reinterpret_cast<uint32_t*>(quantising.codes + row * quantising.stride);
  float4 own[kHeldVectors];
  float peak = 0.0f;
#pragma unroll
  for (int32_t i = 0; i < kHeldVectors; ++i) {
    const int32_t at = thread() + i * kQuantiseThreads;
    own[i] = at < vectors ? __ldcs(values + at) : make_float4(0, 0, 0, 0);
  }
#pragma unroll
  for (int32_t i = 0; i < kHeldVectors; ++i)
    peak = fmaxf(peak, largest(own[i]));
  const int32_t rest = thread() + kHeldVectors * kQuantiseThreads;
  if constexpr (!held)
    for (int32_t at = rest; at < vectors; at += kQuantiseThreads)
      peak = fmaxf(peak, largest(values[at]));
  const float scale = row_scale_of(largest_of_block(peak, warps));
  const RowQuotient quotient(scale);
#pragma unroll
  for (int32_t i = 0; i < kHeldVectors; ++i) {
    const int32_t at = thread() + i * kQuantiseThreads;
    if (at < stored) codes[at] = codes_of(own[i], quotient);
  }
  if constexpr (!held)
    for (int32_t at = rest; at < stored; at += kQuantiseThreads)
      codes[at] = at < vectors ? codes_of(values[at], quotient) : 0;
  if (thread() == 0) quantising.row_scale[row] = scale;
}

template <bool held>
__global__ __launch_bounds__(kQuantiseThreads) void quantise_kernel(
    Quantising quantising) {
  __shared__ float warps[2][kQuantiseThreads / 32];
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t num_rows = quantising.begin[quantising.num_experts];
  const int32_t shared_begin = quantising.begin[quantising.num_routed];
  int32_t turn = 0;
  for (auto row = static_cast<int32_t>(blockIdx.x); row < num_rows;
       row += static_cast<int32_t>(gridDim.x), turn ^= 1)
    quantise_row<held>(
        quantising, row,
        row < shared_begin ? quantising.width : quantising.shared_width,
        warps[turn]);
}

constexpr int32_t kChannels = rows::kChunkElements;
constexpr int32_t kChoices = 9;

struct Channels {
  float at[kChannels];
};

__device__ Channels widened(uint4 bits) {
  Channels values;
  const uint32_t pairs[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int32_t i = 0; i < kChannels / 2; ++i) {
    const float2 pair = ptx::floats_of_bfloat16s(pairs[i]);
    values.at[2 * i] = pair.x;
    values.at[2 * i + 1] = pair.y;
  }
  return values;
}

struct alignas(2 * kChannels) Narrow {
  __nv_bfloat162 pairs[kChannels / 2];
};

__device__ Channels load_channels(const void* data, int64_t offset,
                                  int32_t present, bool wide) {
  const auto* values = static_cast<const __nv_bfloat16*>(data) + offset;
  Narrow narrow = {};
  auto* own = reinterpret_cast<__nv_bfloat16*>(narrow.pairs);
  if (wide) {
    narrow = *reinterpret_cast<const Narrow*>(values);
  } else {
#pragma unroll
    for (int32_t i = 0; i < kChannels; ++i)
      if (i < present) own[i] = values[i];
  }
  Channels channels;
#pragma unroll
  for (int32_t i = 0; i < kChannels; ++i)
    channels.at[i] = __bfloat162float(own[i]);
  return channels;
}

__device__ void store_channels(const Combining& combining, int32_t token,
                               int64_t offset, int32_t present, bool wide,
                               const Channels& channels) {
  auto* values = static_cast<__nv_bfloat16*>(combining.output) + offset;
  Narrow narrow;
#pragma unroll
  for (int32_t i = 0; i < kChannels / 2; ++i)
    narrow.pairs[i] =
        __floats2bfloat162_rn(channels.at[2 * i], channels.at[2 * i + 1]);
  if (wide) {
    collectives::send_ahead(combining.peers, token, offset,
                            reinterpret_cast<const uint4&>(narrow));
    *reinterpret_cast<Narrow*>(values) = narrow;
    return;
  }
#pragma unroll
  for (int32_t i = 0; i < kChannels; ++i)
    if (i < present) values[i] = __float2bfloat16_rn(channels.at[i]);
}

struct Choices {
  int32_t position[kChoices];
  float weight[kChoices];
};

__device__ Choices load_choices(const Combining& combining, int64_t token,
                                int32_t first) {
  Choices choices;
#pragma unroll
  for (int32_t j = 0; j < kChoices; ++j) {
    const int64_t at = token * combining.top_k + first + j;
    const bool present = first + j < combining.top_k;
    choices.position[j] = present ? combining.position[at] : -1;
    choices.weight[j] = present ? combining.weights[at] : 0.0f;
  }
  return choices;
}

__device__ void add_choices(const Combining& combining, const Choices& choices,
                            int32_t channel, Channels& sum) {
  uint4 parts[kChoices];
  const auto* products =
      static_cast<const __nv_bfloat16*>(combining.products) + channel;
#pragma unroll
  for (int32_t j = 0; j < kChoices; ++j)
    parts[j] =
        choices.position[j] < 0
            ? make_uint4(0, 0, 0, 0)
            : __ldcs(reinterpret_cast<const uint4*>(
                  products + int64_t{choices.position[j]} * combining.stride));
#pragma unroll
  for (int32_t j = 0; j < kChoices; ++j) {
    if (choices.position[j] < 0) continue;
    const Channels part = widened(parts[j]);
#pragma unroll
    for (int32_t i = 0; i < kChannels; ++i)
      sum.at[i] = __fmaf_rn(choices.weight[j], part.at[i], sum.at[i]);
  }
}

__global__ __launch_bounds__(kCombineThreads, 2) void combine_kernel(
    const __grid_constant__ Combining combining) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t token = blockIdx.x;
  const bool wide = combining.width % kChannels == 0;
  for (int32_t channel = thread() * kChannels; channel < combining.width;
       channel += static_cast<int32_t>(blockDim.x) * kChannels) {
    const int32_t present = min(kChannels, combining.width - channel);
    const int64_t offset = int64_t{token} * combining.width + channel;
    Channels sum = {};
    if (combining.initial != nullptr)
      sum = load_channels(combining.initial, offset, present, wide);
    for (int32_t first = 0; first < combining.top_k; first += kChoices)
      add_choices(combining, load_choices(combining, token, first), channel,
                  sum);
    store_channels(combining, token, offset, present, wide, sum);
  }
}

}

void sort_choices(const Context& context, const Sorting& sorting) {
  launch("prefill experts: sort", context.stream,
         {dim3(static_cast<uint32_t>(std::max(sorting.num_experts, 1))),
          dim3(kSortThreads)},
         sort_kernel, sorting);
}

void gather_rows(const Context& context, const Gathering& gathering) {
  launch("prefill experts: gather", context.stream,
         {dim3(static_cast<uint32_t>(gathering.num_tokens)), dim3(kRowThreads)},
         gather_kernel, gathering);
}

void quantise_hidden(const Context& context, const Quantising& quantising) {
  const auto blocks =
      static_cast<uint32_t>(context.num_multiprocessors * kQuantiseBlocks);
  const bool held = quantising.stride <= kHeldVectors * kQuantiseThreads * 4;
  launch("prefill experts: quantise", context.stream,
         {dim3(blocks), dim3(kQuantiseThreads)},
         held ? quantise_kernel<true> : quantise_kernel<false>, quantising);
}

void combine_rows(const Context& context, const Combining& combining) {
  const auto rounds = static_cast<int32_t>(
      ceil_divide(combining.width, kCombineThreads * kChannels));
  const int32_t threads = rows::threads_for(combining.width, rounds);
  launch("prefill experts: combine", context.stream,
         {dim3(static_cast<uint32_t>(combining.num_tokens)),
          dim3(static_cast<uint32_t>(threads))},
         combine_kernel, combining);
}

}
