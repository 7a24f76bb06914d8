#pragma once

#include <cstdint>

#include "native/kernels/quantise/codes.hpp"
#include "native/kernels/rows/chunk.hpp"
#include "native/kernels/rows/reduce.hpp"

namespace glm::kernels {

__device__ inline rows::CodeChunk encode(const rows::FloatChunk& chunk,
                                         const RowQuotient& quotient) {
  rows::FloatChunk scaled;
  if (quotient.is_plain())
#pragma unroll
    for (int32_t i = 0; i < rows::kChunkElements; ++i)
      scaled.values[i] = quotient.plain(chunk.values[i]);
  else
#pragma unroll
    for (int32_t i = 0; i < rows::kChunkElements; ++i)
      scaled.values[i] = quotient.exact(chunk.values[i]);
  rows::CodeChunk codes;
#pragma unroll
  for (int32_t i = 0; i < rows::kChunkElements / 2; ++i)
    codes.pairs[i] =
        encode_pair(scaled.values[2 * i], scaled.values[2 * i + 1]);
  return codes;
}

__device__ inline uint32_t largest_bits(const rows::FloatChunk& chunk) {
  uint32_t largest = 0;
#pragma unroll
  for (int32_t i = 0; i < rows::kChunkElements; ++i)
    largest = max(largest, rows::magnitude_bits(chunk.values[i]));
  return largest;
}

template <int32_t num_chunks, bool aligned, int32_t parts = 1,
          typename ValuesOf>
__device__ void write_codes(ValuesOf&& values_of, float largest, int32_t width,
                            uint8_t* codes, float* row_scale) {
  float scale = row_scale_of(largest);
  if (rows::row_thread<parts>() == 0) *row_scale = scale;
  RowQuotient quotient(scale);
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    rows::store<rows::CodeChunk, uint8_t, aligned>(
        codes, rows::chunk_begin<parts>(i), width,
        encode(values_of(i), quotient));
}

}
