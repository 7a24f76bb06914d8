#include <cuda_bf16.h>

#include "native/base/cuda.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/prefill/product.hpp"
#include "native/kernels/prefill/stages.hpp"
#include "native/kernels/quantise/codes.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::prefill {
namespace {

constexpr int32_t kSortThreads = 1024;
constexpr int32_t kRowThreads = 256;
constexpr int32_t kQuantiseWarps = 8;
constexpr int32_t kHeldVectors = 16;

__device__ int32_t thread() { return static_cast<int32_t>(threadIdx.x); }

__device__ void sum_before(int32_t* counts, int32_t* begin, int32_t count) {
  const int32_t lane = thread() % 32;
  int32_t carried = 0;
  for (int32_t first = 0; first < count; first += 32) {
    const int32_t i = first + lane;
    int32_t sum = i < count ? counts[i] : 0;
    for (int32_t step = 1; step < 32; step *= 2) {
      const int32_t below = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += below;
    }
    const int32_t previous = __shfl_up_sync(~0u, sum, 1);
    if (i < count) {
      counts[i] = carried + (lane == 0 ? 0 : previous);
      begin[i] = counts[i];
    }
    carried += __shfl_sync(~0u, sum, 31);
  }
  if (lane == 0) begin[count] = carried;
}

__global__ __launch_bounds__(kSortThreads) void sort_kernel(Sorting sorting) {
  __shared__ int32_t counts[kMaxExperts];
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  for (int32_t i = thread(); i < sorting.num_experts; i += kSortThreads)
    counts[i] = 0;
  __syncthreads();
  for (int32_t i = thread(); i < sorting.num_choices; i += kSortThreads) {
    const int32_t expert = sorting.expert_ids[i] - sorting.expert_begin;
    if (expert >= 0 && expert < sorting.num_experts)
      atomicAdd(&counts[expert], 1);
  }
  __syncthreads();
  if (thread() < 32) sum_before(counts, sorting.begin, sorting.num_experts);
  __syncthreads();
  for (int32_t i = thread(); i < sorting.num_choices; i += kSortThreads) {
    const int32_t expert = sorting.expert_ids[i] - sorting.expert_begin;
    const bool local = expert >= 0 && expert < sorting.num_experts;
    sorting.position[i] = local ? atomicAdd(&counts[expert], 1) : -1;
  }
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

__device__ void quantise_row(const Quantising& quantising, int64_t row) {
  const int32_t lane = thread() % 32;
  const int32_t vectors = quantising.stride / 4;
  const auto* values = reinterpret_cast<const float4*>(quantising.hidden +
                                                       row * quantising.stride);
  auto* codes =
      reinterpret_cast<uint32_t*>(quantising.codes + row * quantising.stride);
  float4 held[kHeldVectors];
  float peak = 0.0f;
#pragma unroll
  for (int32_t i = 0; i < kHeldVectors; ++i) {
    const int32_t at = lane + i * 32;
    if (at >= vectors) break;
    held[i] = values[at];
    peak = fmaxf(peak, largest(held[i]));
  }
  for (int32_t at = lane + kHeldVectors * 32; at < vectors; at += 32)
    peak = fmaxf(peak, largest(values[at]));
  peak = largest_of_warp(peak);
  const float scale = row_scale_of(peak);
  const RowQuotient quotient(scale);
#pragma unroll
  for (int32_t i = 0; i < kHeldVectors; ++i) {
    const int32_t at = lane + i * 32;
    if (at >= vectors) break;
    codes[at] = codes_of(held[i], quotient);
  }
  for (int32_t at = lane + kHeldVectors * 32; at < vectors; at += 32)
    codes[at] = codes_of(values[at], quotient);
  if (lane == 0) quantising.row_scale[row] = scale;
}

__global__ __launch_bounds__(kQuantiseWarps *
                             32) void quantise_kernel(Quantising quantising) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t num_rows = quantising.begin[quantising.num_experts];
  const int32_t first =
      static_cast<int32_t>(blockIdx.x) * kQuantiseWarps + thread() / 32;
  for (int32_t row = first; row < num_rows;
       row += static_cast<int32_t>(gridDim.x) * kQuantiseWarps)
    quantise_row(quantising, row);
}

constexpr int32_t kChannels = 8;

struct Eight {
  float at[kChannels];
};

__device__ Eight widened(uint4 bits) {
  Eight values;
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&bits);
#pragma unroll
  for (int32_t i = 0; i < kChannels / 2; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    values.at[2 * i] = pair.x;
    values.at[2 * i + 1] = pair.y;
  }
  return values;
}

__device__ uint4 narrowed(const Eight& values) {
  uint4 bits;
  auto* pairs = reinterpret_cast<__nv_bfloat162*>(&bits);
#pragma unroll
  for (int32_t i = 0; i < kChannels / 2; ++i)
    pairs[i] = __floats2bfloat162_rn(values.at[2 * i], values.at[2 * i + 1]);
  return bits;
}

__device__ uint4 load_eight(const void* data, int64_t offset, int32_t count,
                            bool wide) {
  const auto* values = static_cast<const __nv_bfloat16*>(data) + offset;
  if (wide) return *reinterpret_cast<const uint4*>(values);
  uint4 bits = make_uint4(0, 0, 0, 0);
  for (int32_t i = 0; i < count; ++i)
    reinterpret_cast<__nv_bfloat16*>(&bits)[i] = values[i];
  return bits;
}

__device__ void store_eight(void* data, int64_t offset, int32_t count,
                            bool wide, uint4 bits) {
  auto* values = static_cast<__nv_bfloat16*>(data) + offset;
  if (wide) {
    *reinterpret_cast<uint4*>(values) = bits;
    return;
  }
  for (int32_t i = 0; i < count; ++i)
    values[i] = reinterpret_cast<const __nv_bfloat16*>(&bits)[i];
}

__global__ __launch_bounds__(kRowThreads) void combine_kernel(
    Combining combining) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int64_t token = blockIdx.x;
  const int32_t* position = combining.position + token * combining.top_k;
  const float* weights = combining.weights + token * combining.top_k;
  const bool wide = combining.width % kChannels == 0;
  for (int32_t channel = thread() * kChannels; channel < combining.width;
       channel += kRowThreads * kChannels) {
    const int32_t count = min(kChannels, combining.width - channel);
    const int64_t offset = token * combining.width + channel;
    Eight sum = {};
    if (combining.initial != nullptr)
      sum = widened(load_eight(combining.initial, offset, count, wide));
#pragma unroll 8
    for (int32_t j = 0; j < combining.top_k; ++j) {
      if (position[j] < 0) continue;
      const Eight part = widened(load_eight(
          combining.products, int64_t{position[j]} * combining.stride + channel,
          count, true));
#pragma unroll
      for (int32_t i = 0; i < kChannels; ++i)
        sum.at[i] += weights[j] * part.at[i];
    }
    store_eight(combining.output, offset, count, wide, narrowed(sum));
  }
}

}

void sort_choices(const Context& context, const Sorting& sorting) {
  launch("prefill experts: sort", context.stream, {dim3(1), dim3(kSortThreads)},
         sort_kernel, sorting);
}

void gather_rows(const Context& context, const Gathering& gathering) {
  launch("prefill experts: gather", context.stream,
         {dim3(static_cast<uint32_t>(gathering.num_tokens)), dim3(kRowThreads)},
         gather_kernel, gathering);
}

void quantise_hidden(const Context& context, const Quantising& quantising) {
  const auto blocks = static_cast<uint32_t>(context.num_multiprocessors * 8);
  launch("prefill experts: quantise", context.stream,
         {dim3(blocks), dim3(kQuantiseWarps * 32)}, quantise_kernel,
         quantising);
}

void combine_rows(const Context& context, const Combining& combining) {
  launch("prefill experts: combine", context.stream,
         {dim3(static_cast<uint32_t>(combining.num_tokens)), dim3(kRowThreads)},
         combine_kernel, combining);
}

}
