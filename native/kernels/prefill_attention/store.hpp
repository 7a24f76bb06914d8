#pragma once

#include "native/kernels/prefill_attention/query_loader.hpp"
#include "native/kernels/prefill_attention/schedule.hpp"
#include "native/kernels/prefill_attention/softmax.hpp"

namespace glm::kernels::prefill_attention_detail {

constexpr int32_t kQuadThreads = 4;
constexpr int32_t kChunkElements = 8;

__device__ inline float head_scale(const Parameters& parameters,
                                   const float* scales, const Item& item) {
  if (scales == nullptr) return 1.0f;
  return scales[int64_t{parameters.layer} * parameters.cache.num_kv_heads +
                item.kv_head];
}

template <typename Tile>
__device__ inline float exponent_factor(const Parameters& parameters,
                                        const Item& item) {
  if constexpr (Tile::kHasScales)
    return __fmul_rn(parameters.exponent_factor,
                     head_scale(parameters, parameters.cache.key_scale, item));
  else
    return parameters.exponent_factor;
}

template <typename Tile>
__device__ inline float output_factor(const Parameters& parameters,
                                      const Item& item, float sum) {
  const float inverse = __frcp_rn(sum);
  if constexpr (Tile::kHasScales)
    return __fmul_rn(
        inverse, head_scale(parameters, parameters.cache.value_scale, item));
  else
    return inverse;
}

__device__ inline uint32_t exchange(uint32_t value, int32_t distance) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, distance);
}

__device__ inline uint4 transpose_quad(const uint32_t (&words)[4]) {
  const bool odd = threadIdx.x & 1;
  const bool upper = threadIdx.x & 2;
  uint32_t pairs[2][2];
#pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    const uint32_t kept = odd ? words[2 * i + 1] : words[2 * i];
    const uint32_t came = exchange(odd ? words[2 * i] : words[2 * i + 1], 1);
    pairs[i][0] = odd ? came : kept;
    pairs[i][1] = odd ? kept : came;
  }
  const uint32_t low = exchange(upper ? pairs[0][0] : pairs[1][0], 2);
  const uint32_t high = exchange(upper ? pairs[0][1] : pairs[1][1], 2);
  return upper ? uint4{low, high, pairs[1][0], pairs[1][1]}
               : uint4{pairs[0][0], pairs[0][1], low, high};
}

__device__ inline void store_chunk(__nv_bfloat16* row, int32_t column,
                                   int32_t head_dim, const uint4& chunk) {
  if (head_dim % kChunkElements == 0) {
    if (column < head_dim) *reinterpret_cast<uint4*>(row + column) = chunk;
    return;
  }
  const uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int32_t i = 0; i < kChunkElements; ++i)
    if (column + i < head_dim)
      row[column + i] = __ushort_as_bfloat16(
          static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
}

template <typename Tile>
__device__ inline void store_row(
    const Parameters& parameters, const Item& item, int32_t row,
    int32_t thread_row, float sum,
    const float (&output)[Tile::kValueParts][Tile::kValueColumns / 2]) {
  constexpr int32_t kPartFragments = Tile::kValueColumns / kFragmentColumns;
  constexpr int32_t kNumFragments = Tile::kValueParts * kPartFragments;
  const float inverse = output_factor<Tile>(parameters, item, quad_sum(sum));
  __nv_bfloat16* destination =
      static_cast<__nv_bfloat16*>(parameters.output) +
      query_offset(parameters, item, min(row, item.num_rows - 1));
#pragma unroll
  for (int32_t i = 0; i < kNumFragments; i += kQuadThreads) {
    uint32_t words[kQuadThreads];
#pragma unroll
    for (int32_t j = 0; j < kQuadThreads; ++j) {
      const float* place =
          &output[(i + j) / kPartFragments]
                 [(i + j) % kPartFragments * kFragment + thread_row * 2];
      words[j] =
          pack_bf16(__fmul_rn(place[0], inverse), __fmul_rn(place[1], inverse));
    }
    const uint4 chunk = transpose_quad(words);
    const int32_t column =
        (i + static_cast<int32_t>(threadIdx.x % kQuadThreads)) *
        kFragmentColumns;
    if (row < item.num_rows)
      store_chunk(destination, column, parameters.cache.head_dim, chunk);
  }
}

}
