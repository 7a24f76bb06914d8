#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "native/kernels/rows/parts.hpp"
#include "native/kernels/rows/shape.hpp"
#include "native/ptx/bfloat16.hpp"

namespace glm::kernels::rows {

struct alignas(16) Bf16Chunk {
  __nv_bfloat162 pairs[kChunkElements / 2];
};

struct alignas(8) CodeChunk {
  uint16_t pairs[kChunkElements / 2];
};

struct FloatChunk {
  float values[kChunkElements];
};

template <typename Chunk>
using WordsOf =
    std::conditional_t<sizeof(Chunk) == sizeof(uint4), uint4, uint2>;

template <typename To, typename From>
__device__ inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

__device__ inline FloatChunk widen(const Bf16Chunk& chunk) {
  FloatChunk result;
#pragma unroll
  for (int32_t i = 0; i < kChunkElements / 2; ++i) {
    const float2 pair =
        ptx::floats_of_bfloat16s(same_bits<uint32_t>(chunk.pairs[i]));
    result.values[2 * i] = pair.x;
    result.values[2 * i + 1] = pair.y;
  }
  return result;
}

__device__ inline Bf16Chunk narrow(const FloatChunk& chunk) {
  Bf16Chunk result;
#pragma unroll
  for (int32_t i = 0; i < kChunkElements / 2; ++i)
    result.pairs[i] =
        __floats2bfloat162_rn(chunk.values[2 * i], chunk.values[2 * i + 1]);
  return result;
}

template <int32_t parts = 1>
__device__ inline int32_t chunk_begin(int32_t i) {
  return (i * row_threads<parts>() + row_thread<parts>()) * kChunkElements;
}

template <typename Chunk, typename Element, bool aligned>
__device__ inline Chunk load(const Element* row, int32_t begin, int32_t width) {
  static_assert(sizeof(Chunk) == sizeof(Element) * kChunkElements);
  Chunk chunk = {};
  if constexpr (aligned) {
    using Words = WordsOf<Chunk>;
    if (begin < width)
      chunk = same_bits<Chunk>(*reinterpret_cast<const Words*>(row + begin));
  } else {
    Element* elements = reinterpret_cast<Element*>(&chunk);
#pragma unroll
    for (int32_t i = 0; i < kChunkElements; ++i)
      if (begin + i < width) elements[i] = row[begin + i];
  }
  return chunk;
}

template <typename Chunk, typename Element, bool aligned>
__device__ inline void store(Element* row, int32_t begin, int32_t width,
                             const Chunk& chunk) {
  static_assert(sizeof(Chunk) == sizeof(Element) * kChunkElements);
  if constexpr (aligned) {
    using Words = WordsOf<Chunk>;
    if (begin < width)
      *reinterpret_cast<Words*>(row + begin) = same_bits<Words>(chunk);
  } else {
    const Element* elements = reinterpret_cast<const Element*>(&chunk);
#pragma unroll
    for (int32_t i = 0; i < kChunkElements; ++i)
      if (begin + i < width) row[begin + i] = elements[i];
  }
}

template <bool aligned>
__device__ inline FloatChunk load_floats(const float* row, int32_t begin,
                                         int32_t width) {
  FloatChunk chunk = {};
  if constexpr (aligned) {
    if (begin < width) {
      float4 low = __ldg(reinterpret_cast<const float4*>(row + begin));
      float4 high = __ldg(reinterpret_cast<const float4*>(row + begin) + 1);
      chunk = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
    }
  } else {
#pragma unroll
    for (int32_t i = 0; i < kChunkElements; ++i)
      if (begin + i < width) chunk.values[i] = __ldg(row + begin + i);
  }
  return chunk;
}

}
