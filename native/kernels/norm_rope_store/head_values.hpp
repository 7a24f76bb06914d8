#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "glm/backend.h"
#include "native/ptx/bfloat16.hpp"

namespace glm::kernels::heads {

constexpr int32_t kLaneDims = 8;

struct Launch {
  glm_norm_rope_store_args args;
  glm_kv_cache cache;
  int32_t lanes_per_head;
  float exact_inverse_of_head_dim;
};

struct Values {
  float at[kLaneDims];
};

template <bool aligned>
__device__ inline uint4 load_raw(const __nv_bfloat16* head, int32_t dim,
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

__device__ inline Values to_floats(uint4 raw) {
  const uint32_t pairs[] = {raw.x, raw.y, raw.z, raw.w};
  Values values;
#pragma unroll
  for (int32_t i = 0; i < kLaneDims / 2; ++i) {
    const float2 pair = ptx::floats_of_bfloat16s(pairs[i]);
    values.at[2 * i] = pair.x;
    values.at[2 * i + 1] = pair.y;
  }
  return values;
}

__device__ inline uint4 from_lane(uint4 raw, int32_t lane) {
  return make_uint4(
      __shfl_sync(~0u, raw.x, lane), __shfl_sync(~0u, raw.y, lane),
      __shfl_sync(~0u, raw.z, lane), __shfl_sync(~0u, raw.w, lane));
}

template <bool aligned>
__device__ inline Values load_floats(const float* source, int32_t dim,
                                     int32_t count) {
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

__device__ inline uint4 round_values(const Values& values) {
  uint4 raw;
  auto* pairs = reinterpret_cast<__nv_bfloat162*>(&raw);
#pragma unroll
  for (int32_t i = 0; i < kLaneDims / 2; ++i)
    pairs[i] = __floats2bfloat162_rn(values.at[2 * i], values.at[2 * i + 1]);
  return raw;
}

__device__ inline bool is_query(const Launch& launch, int32_t head) {
  return head < launch.args.num_heads;
}

__device__ inline int32_t partner_of(const Launch& launch, int32_t dim) {
  const int32_t half = launch.args.rotary_dim / 2;
  if (dim >= launch.args.rotary_dim) return dim;
  return dim < half ? dim + half : dim - half;
}

template <bool aligned>
__device__ inline Values load_partners(const Launch& launch,
                                       const float* source, int32_t dim) {
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
__device__ inline Gains load_gains(const Launch& launch, int32_t dim,
                                   const float* weight) {
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
__device__ inline Gains turn_gains(const Launch& launch, int32_t token,
                                   int32_t dim, Gains gains) {
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
__device__ inline uint4 load_partner(const Launch& launch,
                                     const __nv_bfloat16* head, int32_t dim,
                                     uint4 raw) {
  if constexpr (aligned) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    return from_lane(raw, lane + (partner_of(launch, dim) - dim) / kLaneDims);
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(head);
  uint32_t pairs[kLaneDims / 2] = {};
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    if (dim + i < launch.args.rotary_dim)
      pairs[i / 2] |= static_cast<uint32_t>(bits[partner_of(launch, dim + i)])
                      << i % 2 * 16;
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ inline float square_sum(const Values& values) {
  float sum = 0.0f;
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    sum = __fmaf_rn(values.at[i], values.at[i], sum);
  return sum;
}

template <int32_t num>
__device__ void divide_by_head_dim(const Launch& launch, float (&sums)[num]) {
  const float inverse = launch.exact_inverse_of_head_dim;
  const float head_dim = static_cast<float>(launch.cache.head_dim);
  if (inverse > 0.0f) {
#pragma unroll
    for (int32_t i = 0; i < num; ++i) sums[i] = __fmul_rn(sums[i], inverse);
  } else {
#pragma unroll
    for (int32_t i = 0; i < num; ++i) sums[i] = __fdiv_rn(sums[i], head_dim);
  }
}

template <int32_t num>
__device__ void inverse_norms(const Launch& launch, const uint4 (&raw)[num],
                              float (&factor)[num]) {
#pragma unroll
  for (int32_t i = 0; i < num; ++i) factor[i] = square_sum(to_floats(raw[i]));
  for (int32_t step = launch.lanes_per_head / 2; step > 0; step /= 2)
#pragma unroll
    for (int32_t i = 0; i < num; ++i)
      factor[i] += __shfl_xor_sync(~0u, factor[i], step);
  divide_by_head_dim(launch, factor);
#pragma unroll
  for (int32_t i = 0; i < num; ++i)
    factor[i] = rsqrtf(__fadd_rn(factor[i], launch.args.epsilon));
}

__device__ inline Values normed_and_turned(uint4 raw, uint4 partner,
                                           const Gains& gains, float factor) {
  const Values own = to_floats(raw);
  const Values other = to_floats(partner);
  Values values;
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    values.at[i] =
        __fmul_rn(__fmaf_rn(own.at[i], gains.own.at[i],
                            __fmul_rn(other.at[i], gains.partner.at[i])),
                  factor);
  return values;
}

}
