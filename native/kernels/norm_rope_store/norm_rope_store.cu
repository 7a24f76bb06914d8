#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "native/base/cuda.hpp"
#include "native/kernels/kv_cache.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/norm_rope_store/norm_rope_store.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kLaneDims = 8;
constexpr int32_t kFewRows = 16;
constexpr int32_t kManyTokens = 1024;

constexpr int32_t blocks_per_multiprocessor(int32_t heads_at_once) {
  return heads_at_once == 1 ? 4 : heads_at_once == 4 ? 2 : 3;
}

struct Launch {
  glm_norm_rope_store_args args;
  glm_kv_cache cache;
  int32_t lanes_per_head;
};

struct Values {
  float at[kLaneDims];
};

template <bool aligned>
__device__ uint4 load_raw(const __nv_bfloat16* head, int32_t dim,
                          int32_t head_dim) {
  if constexpr (aligned) {
    return dim < head_dim ? __ldcs(reinterpret_cast<const uint4*>(head + dim))
                          : make_uint4(0, 0, 0, 0);
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(head);
  uint32_t pairs[kLaneDims / 2] = {};
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    if (dim + i < head_dim)
      pairs[i / 2] |= static_cast<uint32_t>(bits[dim + i]) << i % 2 * 16;
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ Values to_floats(uint4 raw) {
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&raw);
  Values values;
#pragma unroll
  for (int32_t i = 0; i < kLaneDims / 2; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    values.at[2 * i] = pair.x;
    values.at[2 * i + 1] = pair.y;
  }
  return values;
}

__device__ uint4 from_lane(uint4 raw, int32_t lane) {
  return make_uint4(
      __shfl_sync(~0u, raw.x, lane), __shfl_sync(~0u, raw.y, lane),
      __shfl_sync(~0u, raw.z, lane), __shfl_sync(~0u, raw.w, lane));
}

template <bool aligned>
__device__ Values load_floats(const float* source, int32_t dim, int32_t count) {
  Values values;
  if constexpr (aligned) {
    const auto* quads = reinterpret_cast<const float4*>(source + dim);
    float4 low = dim < count ? quads[0] : make_float4(0, 0, 0, 0);
    float4 high = dim < count ? quads[1] : make_float4(0, 0, 0, 0);
    values = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  } else {
#pragma unroll
    for (int32_t i = 0; i < kLaneDims; ++i)
      values.at[i] = dim + i < count ? source[dim + i] : 0.0f;
  }
  return values;
}

__device__ uint4 round_values(const Values& values) {
  uint4 raw;
  auto* pairs = reinterpret_cast<__nv_bfloat162*>(&raw);
#pragma unroll
  for (int32_t i = 0; i < kLaneDims / 2; ++i)
    pairs[i] = __floats2bfloat162_rn(values.at[2 * i], values.at[2 * i + 1]);
  return raw;
}

__device__ float inverse_norm(const Values& values, const Launch& launch) {
  float sum = 0.0f;
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    sum = __fmaf_rn(values.at[i], values.at[i], sum);
  for (int32_t step = launch.lanes_per_head / 2; step > 0; step /= 2)
    sum += __shfl_xor_sync(~0u, sum, step);
  const float mean = __fdiv_rn(sum, static_cast<float>(launch.cache.head_dim));
  return rsqrtf(__fadd_rn(mean, launch.args.epsilon));
}

__device__ bool is_query(const Launch& launch, int32_t head) {
  return head < launch.args.num_heads;
}

__device__ int32_t partner_of(const Launch& launch, int32_t dim) {
  const int32_t half = launch.args.rotary_dim / 2;
  if (dim >= launch.args.rotary_dim) return dim;
  return dim < half ? dim + half : dim - half;
}

template <bool aligned>
__device__ Values load_partners(const Launch& launch, const float* source,
                                int32_t dim) {
  if constexpr (aligned)
    return load_floats<aligned>(source, partner_of(launch, dim),
                                launch.cache.head_dim);
  Values values = {};
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    if (dim + i < launch.args.rotary_dim)
      values.at[i] = source[partner_of(launch, dim + i)];
  return values;
}

struct Gains {
  Values own;
  Values partner;
};

template <bool aligned>
__device__ Gains load_gains(const Launch& launch, int32_t dim, int32_t head) {
  const float* weight =
      is_query(launch, head) ? launch.args.query_norm : launch.args.key_norm;
  if (weight != nullptr)
    return {load_floats<aligned>(weight, dim, launch.cache.head_dim),
            load_partners<aligned>(launch, weight, dim)};
  Gains gains;
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    gains.own.at[i] = gains.partner.at[i] = 1.0f;
  return gains;
}

template <bool aligned>
__device__ Gains turn_gains(const Launch& launch, int32_t token, int32_t dim,
                            Gains gains) {
  const int32_t half = launch.args.rotary_dim / 2;
  Values cosine = {{1, 1, 1, 1, 1, 1, 1, 1}};
  Values sine = {};
  if (dim < launch.args.rotary_dim) {
    const int64_t row = int64_t{launch.args.positions[token]} * half;
    if constexpr (aligned) {
      const int32_t angle = dim < half ? dim : dim - half;
      cosine = load_floats<aligned>(launch.args.cosine + row, angle, half);
      sine = load_floats<aligned>(launch.args.sine + row, angle, half);
    } else {
#pragma unroll
      for (int32_t i = 0; i < kLaneDims; ++i) {
        if (dim + i >= launch.args.rotary_dim) continue;
        const int32_t angle = dim + i < half ? dim + i : dim + i - half;
        cosine.at[i] = launch.args.cosine[row + angle];
        sine.at[i] = launch.args.sine[row + angle];
      }
    }
  }
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i) {
    gains.own.at[i] = __fmul_rn(gains.own.at[i], cosine.at[i]);
    const float turned = __fmul_rn(gains.partner.at[i], sine.at[i]);
    gains.partner.at[i] = dim + i < half ? -turned : turned;
  }
  return gains;
}

template <bool aligned>
__device__ Values partner_values(const Launch& launch,
                                 const __nv_bfloat16* head, int32_t dim,
                                 uint4 raw) {
  if constexpr (aligned) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t step = (partner_of(launch, dim) - dim) / kLaneDims;
    return to_floats(from_lane(raw, lane + step));
  }
  Values values = {};
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    if (dim + i < launch.args.rotary_dim)
      values.at[i] = __bfloat162float(head[partner_of(launch, dim + i)]);
  return values;
}

template <bool aligned>
__device__ Values normed_and_turned(const Launch& launch,
                                    const __nv_bfloat16* head, int32_t dim,
                                    uint4 raw, const Gains& gains,
                                    bool has_norm) {
  Values values = to_floats(raw);
  const Values partner = partner_values<aligned>(launch, head, dim, raw);
  const float factor = has_norm ? inverse_norm(values, launch) : 1.0f;
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    values.at[i] =
        __fmul_rn(__fmaf_rn(values.at[i], gains.own.at[i],
                            __fmul_rn(partner.at[i], gains.partner.at[i])),
                  factor);
  return values;
}

template <bool aligned>
__device__ void store_query(const Launch& launch, int32_t token, int32_t head,
                            int32_t dim, const Values& values) {
  const int32_t head_dim = launch.cache.head_dim;
  if (dim >= head_dim) return;
  auto* row = static_cast<__nv_bfloat16*>(launch.args.query) +
              (int64_t{token} * launch.args.num_heads + head) * head_dim;
  if constexpr (aligned) {
    *reinterpret_cast<uint4*>(row + dim) = round_values(values);
  } else {
#pragma unroll
    for (int32_t i = 0; i < kLaneDims; ++i)
      if (dim + i < head_dim) row[dim + i] = __float2bfloat16(values.at[i]);
  }
}

__device__ uint2 encode_values(const Values& values) {
  uint32_t pairs[kLaneDims / 2];
#pragma unroll
  for (int32_t i = 0; i < kLaneDims / 2; ++i)
    pairs[i] = __nv_cvt_float2_to_fp8x2(
        make_float2(values.at[2 * i], values.at[2 * i + 1]), __NV_SATFINITE,
        __NV_E4M3);
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

__device__ Values divided(Values values, float divisor) {
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    values.at[i] = __fdiv_rn(values.at[i], divisor);
  return values;
}

__device__ float head_scale(const Launch& launch, int32_t kv_head,
                            bool is_value) {
  const glm_kv_cache& cache = launch.cache;
  const float* scales = is_value ? cache.value_scale : cache.key_scale;
  if (scales == nullptr) return 1.0f;
  return __ldg(scales + int64_t{launch.args.layer} * cache.num_kv_heads +
               kv_head);
}

template <bool scaled>
__device__ void store_page(const Launch& launch, int32_t slot, int32_t kv_head,
                           bool is_value, int32_t dim, const Values& values) {
  const glm_kv_cache& cache = launch.cache;
  const int32_t padded = num_halves(cache.dtype, cache.head_dim) * kHalfBytes /
                         dtype_bytes(cache.dtype);
  if (slot < 0 || dim >= padded || kv_head >= cache.num_kv_heads) return;
  const int32_t offset = slot % cache.page_size;
  int64_t place =
      page_offset(cache, launch.args.layer, kv_head, slot / cache.page_size) +
      offset / kBlockTokens * block_bytes(cache.dtype, cache.head_dim) +
      block_element_offset(cache.dtype, cache.head_dim, is_value,
                           offset % kBlockTokens, dim);
  uint8_t* into = static_cast<uint8_t*>(cache.data) + place;
  if constexpr (scaled)
    *reinterpret_cast<uint2*>(into) =
        encode_values(divided(values, head_scale(launch, kv_head, is_value)));
  else if (cache.dtype == GLM_DTYPE_BF16)
    *reinterpret_cast<uint4*>(into) = round_values(values);
  else
    *reinterpret_cast<uint2*>(into) = encode_values(values);
}

template <bool aligned, bool scaled>
__device__ void finish_head(const Launch& launch, int32_t token, int32_t slot,
                            int32_t index, int32_t dim,
                            const __nv_bfloat16* head, uint4 raw,
                            const Gains& gains) {
  const glm_norm_rope_store_args& args = launch.args;
  const int32_t kv_head = index - args.num_heads;
  const float* weight =
      is_query(launch, index) ? args.query_norm : args.key_norm;
  const Values values = normed_and_turned<aligned>(launch, head, dim, raw,
                                                   gains, weight != nullptr);
  if (is_query(launch, index))
    store_query<aligned>(launch, token, index, dim, values);
  else if (kv_head < launch.cache.num_kv_heads)
    store_page<scaled>(launch, slot, kv_head, false, dim, values);
  else
    store_page<scaled>(launch, slot, kv_head - launch.cache.num_kv_heads, true,
                       dim, to_floats(raw));
}

template <bool aligned, int32_t heads_at_once, bool scaled>
__global__ __launch_bounds__(
    kThreads, blocks_per_multiprocessor(
                  heads_at_once)) void norm_rope_store_kernel(Launch launch) {
  const int32_t lanes = launch.lanes_per_head;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t num_heads =
      launch.args.num_heads + 2 * launch.cache.num_kv_heads;
  const int32_t head_dim = launch.cache.head_dim;
  const int32_t token = static_cast<int32_t>(blockIdx.x);
  const int32_t dim = thread % lanes * kLaneDims;
  int32_t index[heads_at_once];
#pragma unroll
  for (int32_t i = 0; i < heads_at_once; ++i)
    index[i] = (static_cast<int32_t>(blockIdx.y) * heads_at_once + i) *
                   (kThreads / lanes) +
               thread / lanes;
  const bool has_few = launch.args.rows.num_tokens <= kFewRows;
  if (has_few) ptx::let_successor_start();
  Gains gains = load_gains<aligned>(launch, dim, index[0]);
  if (has_few) gains = turn_gains<aligned>(launch, token, dim, gains);
  const int32_t slot = launch.args.slots[token];
  ptx::wait_for_predecessor();
  if (!has_few) ptx::let_successor_start();
  const auto* row = static_cast<const __nv_bfloat16*>(launch.args.qkv) +
                    int64_t{token} * num_heads * head_dim;
  const __nv_bfloat16* head[heads_at_once];
  uint4 raw[heads_at_once];
#pragma unroll
  for (int32_t i = 0; i < heads_at_once; ++i) {
    head[i] = row + int64_t{min(index[i], num_heads - 1)} * head_dim;
    raw[i] = load_raw<aligned>(head[i], dim, head_dim);
  }
  if (!has_few) gains = turn_gains<aligned>(launch, token, dim, gains);
#pragma unroll
  for (int32_t i = 0; i < heads_at_once; ++i) {
    if (is_query(launch, index[i]) != is_query(launch, index[0]))
      gains = turn_gains<aligned>(launch, token, dim,
                                  load_gains<aligned>(launch, dim, index[i]));
    finish_head<aligned, scaled>(launch, token, slot, index[i], dim, head[i],
                                 raw[i], gains);
  }
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

bool allows_wide_accesses(const Launch& launch) {
  const glm_norm_rope_store_args& args = launch.args;
  return launch.cache.head_dim % kLaneDims == 0 &&
         args.rotary_dim % (2 * kLaneDims) == 0 && is_aligned(args.qkv) &&
         is_aligned(args.query) && is_aligned(args.query_norm) &&
         is_aligned(args.key_norm) && is_aligned(args.cosine) &&
         is_aligned(args.sine);
}

template <bool aligned, int32_t heads_at_once>
void launch_heads(const Context& context, const Launch& arguments) {
  const int32_t num_heads =
      arguments.args.num_heads + 2 * arguments.cache.num_kv_heads;
  const int32_t heads_of_block =
      kThreads / arguments.lanes_per_head * heads_at_once;
  LaunchShape shape;
  shape.grid =
      dim3(static_cast<uint32_t>(arguments.args.rows.num_tokens),
           static_cast<uint32_t>(ceil_divide(num_heads, heads_of_block)));
  shape.block = dim3(kThreads);
  launch("norm_rope_store", context.stream, shape,
         has_scales(arguments.cache)
             ? norm_rope_store_kernel<aligned, heads_at_once, true>
             : norm_rope_store_kernel<aligned, heads_at_once, false>,
         arguments);
}

void expect_arguments(const char* where, const glm_norm_rope_store_args& args) {
  expect_kv_cache(where, args.cache);
  expect_layer(where, *args.cache, args.layer);
  expect_range(where, "num_heads", 1, INT32_MAX, args.num_heads);
  expect_range(where, "rotary_dim", 0, args.cache->head_dim, args.rotary_dim);
  expect_equal(where, "rotary_dim modulo 2", 0, args.rotary_dim % 2);
  expect_pointer(where, "positions", args.positions);
  expect_pointer(where, "slots", args.slots);
  expect_pointer(where, "qkv", args.qkv);
  expect_pointer(where, "query", args.query);
  if (args.rotary_dim == 0) return;
  expect_pointer(where, "cosine", args.cosine);
  expect_pointer(where, "sine", args.sine);
}

int32_t lanes_for(const glm_kv_cache& cache) {
  const int32_t padded = num_halves(cache.dtype, cache.head_dim) * kHalfBytes /
                         dtype_bytes(cache.dtype);
  int32_t lanes = 1;
  while (lanes * kLaneDims < padded) lanes *= 2;
  return lanes;
}

}

void norm_rope_store(const Context& context,
                     const glm_norm_rope_store_args& args) {
  const char* where = "norm_rope_store";
  expect_range(where, "num_tokens", 0, INT32_MAX, args.rows.num_tokens);
  if (args.rows.num_tokens == 0) return;
  expect_arguments(where, args);
  const Launch arguments = {args, *args.cache, lanes_for(*args.cache)};
  if (!allows_wide_accesses(arguments))
    return launch_heads<false, 1>(context, arguments);
  const int64_t groups =
      ceil_divide(args.num_heads + 2 * int64_t{args.cache->num_kv_heads},
                  kThreads / arguments.lanes_per_head);
  const auto is_one_wave = [&](int32_t heads_at_once) {
    return args.rows.num_tokens * ceil_divide(groups, heads_at_once) <=
           int64_t{blocks_per_multiprocessor(heads_at_once)} *
               context.num_multiprocessors;
  };
  if (groups == 1 || is_one_wave(1))
    return launch_heads<true, 1>(context, arguments);
  if (groups == 2 || is_one_wave(2))
    return launch_heads<true, 2>(context, arguments);
  if (groups <= 4 || args.rows.num_tokens < kManyTokens)
    return launch_heads<true, 4>(context, arguments);
  launch_heads<true, 8>(context, arguments);
}

int64_t norm_rope_store_scratch_bytes(const glm_workspace_shape&) { return 0; }

}
