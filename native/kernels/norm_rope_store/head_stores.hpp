#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/norm_rope_store/head_values.hpp"

namespace glm::kernels::heads {

__device__ inline __nv_bfloat16* query_row(const Launch& launch, int32_t token,
                                           int32_t head) {
  return static_cast<__nv_bfloat16*>(launch.args.query) +
         (int64_t{token} * launch.args.num_heads + head) *
             launch.cache.head_dim;
}

template <bool aligned>
__device__ inline void store_query(const Launch& launch, __nv_bfloat16* row,
                                   int32_t dim, const Values& values) {
  const int32_t head_dim = launch.cache.head_dim;
  if (dim >= head_dim) return;
  if constexpr (aligned) {
    *reinterpret_cast<uint4*>(row + dim) = round_values(values);
  } else {
#pragma unroll
    for (int32_t i = 0; i < kLaneDims; ++i)
      if (dim + i < head_dim) row[dim + i] = __float2bfloat16(values.at[i]);
  }
}

__device__ inline uint2 encode_values(const Values& values) {
  uint32_t pairs[kLaneDims / 2];
#pragma unroll
  for (int32_t i = 0; i < kLaneDims / 2; ++i)
    pairs[i] = __nv_cvt_float2_to_fp8x2(
        make_float2(values.at[2 * i], values.at[2 * i + 1]), __NV_SATFINITE,
        __NV_E4M3);
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

__device__ inline Values divided(Values values, float divisor) {
#pragma unroll
  for (int32_t i = 0; i < kLaneDims; ++i)
    values.at[i] = __fdiv_rn(values.at[i], divisor);
  return values;
}

__device__ inline float head_scale(const Launch& launch, int32_t kv_head,
                                   bool is_value) {
  const glm_kv_cache& cache = launch.cache;
  const float* scales = is_value ? cache.value_scale : cache.key_scale;
  if (scales == nullptr) return 1.0f;
  return __ldg(scales + int64_t{launch.args.layer} * cache.num_kv_heads +
               kv_head);
}

__device__ inline uint8_t* page_row(const Launch& launch, int32_t slot,
                                    int32_t dim) {
  const glm_kv_cache& cache = launch.cache;
  const int32_t padded = num_halves(cache.dtype, cache.head_dim) * kHalfBytes /
                         dtype_bytes(cache.dtype);
  if (slot < 0 || dim >= padded) return nullptr;
  const int32_t offset = slot % cache.page_size;
  const int64_t place =
      page_offset(cache, launch.args.layer, 0, slot / cache.page_size) +
      offset / kBlockTokens * block_bytes(cache.dtype, cache.head_dim) +
      block_element_offset(cache.dtype, cache.head_dim, false,
                           offset % kBlockTokens, dim);
  return static_cast<uint8_t*>(cache.data) + place;
}

template <bool scaled>
__device__ inline void store_page(const Launch& launch, uint8_t* row,
                                  int32_t kv_head, bool is_value,
                                  const Values& values) {
  const glm_kv_cache& cache = launch.cache;
  if (row == nullptr) return;
  uint8_t* into =
      row +
      kv_head * head_page_bytes(cache.dtype, cache.head_dim, cache.page_size) +
      block_element_offset(cache.dtype, cache.head_dim, is_value, 0, 0);
  if constexpr (scaled)
    *reinterpret_cast<uint2*>(into) =
        encode_values(divided(values, head_scale(launch, kv_head, is_value)));
  else if (cache.dtype == GLM_DTYPE_BF16)
    *reinterpret_cast<uint4*>(into) = round_values(values);
  else
    *reinterpret_cast<uint2*>(into) = encode_values(values);
}

}
