#pragma once

#include <cstdint>

#include "native/kernels/rows/chunk.hpp"
#include "native/kernels/rows/reduce.hpp"

namespace glm::kernels::rows {

__device__ inline void measure(const Bf16Chunk& chunk, const FloatChunk& weight,
                               RowMeasure& own) {
  FloatChunk values = widen(chunk);
#pragma unroll
  for (int32_t i = 0; i < kChunkElements; ++i) {
    float value = values.values[i];
    own.square_sum = fmaf(value, value, own.square_sum);
    own.largest_bits =
        max(own.largest_bits, magnitude_bits(value * weight.values[i]));
  }
}

__device__ inline float norm_factor(const RowMeasure& whole, int32_t width,
                                    float epsilon) {
  return rsqrtf(whole.square_sum / static_cast<float>(width) + epsilon);
}

__device__ inline FloatChunk normed(const Bf16Chunk& chunk,
                                    const FloatChunk& weight, float factor) {
  FloatChunk values = widen(chunk);
#pragma unroll
  for (int32_t i = 0; i < kChunkElements; ++i)
    values.values[i] = (values.values[i] * weight.values[i]) * factor;
  return values;
}

}
