#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/collectives/peer/exchange.hpp"
#include "native/kernels/rows/chunk.hpp"

namespace glm::kernels::norm {

struct NormRows {
  int32_t num_tokens;
  int32_t width;
  float epsilon;
  __nv_bfloat16* residual;
  const __nv_bfloat16* delta;
  const float* weight;
  __nv_bfloat16* plain;
  uint8_t* codes;
  float* row_scale;
  collectives::Exchange exchange;
};

__device__ inline void add_to(rows::FloatChunk& sum,
                              const rows::FloatChunk& added) {
#pragma unroll
  for (int32_t i = 0; i < rows::kChunkElements; ++i)
    sum.values[i] += added.values[i];
}

template <bool aligned>
__device__ inline rows::Bf16Chunk load_delta(const NormRows& args, int32_t row,
                                             int32_t begin) {
  return rows::load<rows::Bf16Chunk, __nv_bfloat16, aligned>(
      args.delta + int64_t{row} * args.width, begin, args.width);
}

template <bool aligned>
__device__ inline rows::Bf16Chunk load_residual(const NormRows& args,
                                                int32_t row, int32_t begin) {
  return rows::load<rows::Bf16Chunk, __nv_bfloat16, aligned>(
      args.residual + int64_t{row} * args.width, begin, args.width);
}

template <bool aligned>
__device__ inline void store_residual(const NormRows& args, int32_t row,
                                      int32_t begin,
                                      const rows::Bf16Chunk& chunk) {
  rows::store<rows::Bf16Chunk, __nv_bfloat16, aligned>(
      args.residual + int64_t{row} * args.width, begin, args.width, chunk);
}

}
