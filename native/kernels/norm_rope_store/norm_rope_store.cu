#include <cuda_bf16.h>

#include "native/base/cuda.hpp"
#include "native/kernels/kv_cache.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/norm_rope_store/norm_rope_store.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kLaneDims = 8;
constexpr int32_t kBlocksPerMultiprocessor = 2;

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

__device__ float scaled(float value, float factor, float gain) {
  return __fmul_rn(__fmul_rn(value, factor), gain);
}

__device__ float turned(float value, float partner, float cosine, float sine) {
  return __fmaf_rn(value, cosine, __fmul_rn(partner, sine));
}

struct Lane {
  int32_t dim;
  bool turns;
  bool is_first;
  int32_t partner_dim;
  int32_t partner_lane;
  int32_t angle;
};

__device__ Lane lane_of(const Launch& launch) {
  const int32_t half = launch.args.rotary_dim / 2;
  const int32_t index =
      static_cast<int32_t>(threadIdx.x) % launch.lanes_per_head;
  Lane lane;
  lane.dim = index * kLaneDims;
  lane.turns = lane.dim < launch.args.rotary_dim;
  lane.is_first = lane.dim < half;
  lane.partner_dim = lane.is_first ? lane.dim + half : lane.dim - half;
  lane.partner_lane = static_cast<int32_t>(threadIdx.x) % 32;
  if (lane.turns) lane.partner_lane += lane.partner_dim / kLaneDims - index;
  lane.angle = lane.is_first ? lane.dim : lane.partner_dim;
  return lane;
}

__device__ bool is_query(const Launch& launch, int32_t head) {
  return head < launch.args.num_heads;
}

struct Gains {
  const float* weight;
  Values own;
  Values partner;
};

template <bool aligned>
__device__ Gains load_gains(const Launch& launch, const Lane& lane,
                            int32_t head) {
  const glm_norm_rope_store_args& args = launch.args;
  Gains gains;
  gains.weight = is_query(launch, head) ? args.query_norm : args.key_norm;
  if (gains.weight == nullptr) return gains;
  const int32_t head_dim = launch.cache.head_dim;
  gains.own = load_floats<aligned>(gains.weight, lane.dim, head_dim);
  if (aligned && lane.turns)
    gains.partner =
        load_floats<aligned>(gains.weight, lane.partner_dim, head_dim);
  return gains;
}

struct Angles {
  const float* cosine_row;
  const float* sine_row;
  Values cosine;
  Values sine;
};

template <bool aligned>
__device__ Angles load_angles(const Launch& launch, const Lane& lane,
                              int32_t token) {
  Angles angles = {};
  if (!lane.turns) return angles;
  const int32_t half = launch.args.rotary_dim / 2;
  const int64_t row = int64_t{launch.args.positions[token]} * half;
  angles.cosine_row = launch.args.cosine + row;
  angles.sine_row = launch.args.sine + row;
  if constexpr (aligned) {
    angles.cosine = load_floats<aligned>(angles.cosine_row, lane.angle, half);
    angles.sine = load_floats<aligned>(angles.sine_row, lane.angle, half);
  }
  return angles;
}

__device__ void turn_wide(const Lane& lane, const Angles& angles,
                          const Gains& gains, float factor,
                          const Values& partner, Values& values) {
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i) {
    const float other = gains.weight == nullptr ? partner.at[i]
                                                : scaled(partner.at[i], factor,
                                                         gains.partner.at[i]);
    values.at[i] = turned(values.at[i], lane.is_first ? -other : other,
                          angles.cosine.at[i], angles.sine.at[i]);
  }
}

__device__ void turn_each(const Launch& launch, const Lane& lane,
                          const Angles& angles, const Gains& gains,
                          float factor, const __nv_bfloat16* head,
                          Values& values) {
  const int32_t half = launch.args.rotary_dim / 2;
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i) {
    const int32_t dim = lane.dim + i;
    if (dim >= launch.args.rotary_dim) continue;
    const int32_t partner = dim < half ? dim + half : dim - half;
    const int32_t angle = dim < half ? dim : partner;
    float other = __bfloat162float(head[partner]);
    if (gains.weight != nullptr)
      other = scaled(other, factor, gains.weight[partner]);
    values.at[i] = turned(values.at[i], dim < half ? -other : other,
                          angles.cosine_row[angle], angles.sine_row[angle]);
  }
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

__device__ void store_page(const Launch& launch, int32_t token, int32_t kv_head,
                           bool is_value, int32_t dim, const Values& values) {
  const glm_kv_cache& cache = launch.cache;
  const int32_t slot = launch.args.slots[token];
  const int32_t padded = num_halves(cache.dtype, cache.head_dim) * kHalfBytes /
                         dtype_bytes(cache.dtype);
  if (slot < 0 || dim >= padded) return;
  const int32_t offset = slot % cache.page_size;
  int64_t place =
      page_offset(cache, launch.args.layer, kv_head, slot / cache.page_size) +
      offset / kBlockTokens * block_bytes(cache.dtype, cache.head_dim) +
      block_element_offset(cache.dtype, cache.head_dim, is_value,
                           offset % kBlockTokens, dim);
  *reinterpret_cast<uint4*>(static_cast<uint8_t*>(cache.data) + place) =
      round_values(values);
}

template <bool aligned>
__device__ void finish_head(const Launch& launch, const Lane& lane,
                            const Angles& angles, const Gains& gains,
                            int32_t token, int32_t index,
                            const __nv_bfloat16* head, uint4 raw) {
  const glm_norm_rope_store_args& args = launch.args;
  const int32_t num_kv_heads = launch.cache.num_kv_heads;
  const bool is_value = index >= args.num_heads + num_kv_heads;
  Values values = to_floats(raw);
  const float factor = inverse_norm(values, launch);
  const uint4 partner =
      aligned ? from_lane(raw, lane.partner_lane) : make_uint4(0, 0, 0, 0);
  if (!is_value && gains.weight != nullptr) {
#pragma unroll
    for (int32_t i = 0; i < kLaneDims; ++i)
      values.at[i] = scaled(values.at[i], factor, gains.own.at[i]);
  }
  if (!is_value && lane.turns) {
    if constexpr (aligned)
      turn_wide(lane, angles, gains, factor, to_floats(partner), values);
    else
      turn_each(launch, lane, angles, gains, factor, head, values);
  }
  if (is_query(launch, index))
    return store_query<aligned>(launch, token, index, lane.dim, values);
  store_page(launch, token,
             index - args.num_heads - (is_value ? num_kv_heads : 0), is_value,
             lane.dim, values);
}

template <bool aligned, int32_t heads_at_once>
__global__ __launch_bounds__(
    kThreads,
    kBlocksPerMultiprocessor) void norm_rope_store_kernel(Launch launch) {
  const int32_t heads_of_block = kThreads / launch.lanes_per_head;
  const int32_t num_heads =
      launch.args.num_heads + 2 * launch.cache.num_kv_heads;
  const int32_t token = static_cast<int32_t>(blockIdx.x);
  const Lane lane = lane_of(launch);
  int32_t index[heads_at_once];
#pragma unroll
  for (int32_t i = 0; i < heads_at_once; ++i)
    index[i] =
        min((static_cast<int32_t>(blockIdx.y) * heads_at_once + i) *
                    heads_of_block +
                static_cast<int32_t>(threadIdx.x) / launch.lanes_per_head,
            num_heads - 1);
  Gains gains = load_gains<aligned>(launch, lane, index[0]);
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const Angles angles = load_angles<aligned>(launch, lane, token);
  const auto* row = static_cast<const __nv_bfloat16*>(launch.args.qkv) +
                    int64_t{token} * num_heads * launch.cache.head_dim;
  uint4 raw[heads_at_once];
#pragma unroll
  for (int32_t i = 0; i < heads_at_once; ++i)
    raw[i] = load_raw<aligned>(row + int64_t{index[i]} * launch.cache.head_dim,
                               lane.dim, launch.cache.head_dim);
#pragma unroll
  for (int32_t i = 0; i < heads_at_once; ++i) {
    if (is_query(launch, index[i]) != is_query(launch, index[0]))
      gains = load_gains<aligned>(launch, lane, index[i]);
    finish_head<aligned>(launch, lane, angles, gains, token, index[i],
                         row + int64_t{index[i]} * launch.cache.head_dim,
                         raw[i]);
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
         norm_rope_store_kernel<aligned, heads_at_once>, arguments);
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
  const int64_t blocks = args.rows.num_tokens * groups;
  const int64_t resident =
      int64_t{kBlocksPerMultiprocessor} * context.num_multiprocessors;
  if (groups == 1 || blocks <= resident)
    return launch_heads<true, 1>(context, arguments);
  if (groups == 2 || blocks <= 2 * resident)
    return launch_heads<true, 2>(context, arguments);
  if (groups <= 4 || blocks <= 4 * resident)
    return launch_heads<true, 4>(context, arguments);
  launch_heads<true, 8>(context, arguments);
}

int64_t norm_rope_store_scratch_bytes(const glm_workspace_shape&) { return 0; }

}
