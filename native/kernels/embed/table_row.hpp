#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/rows/chunk.hpp"

namespace glm::kernels {

struct EmbeddingTable {
  const void* data;
  int32_t num_rows;
  int32_t width;
};

template <bool aligned>
__device__ inline rows::Bf16Chunk table_chunk(const __nv_bfloat16* row,
                                              int32_t begin, int32_t width) {
  return rows::load<rows::Bf16Chunk, __nv_bfloat16, aligned>(row, begin, width);
}

template <bool aligned>
__device__ inline rows::Bf16Chunk table_chunk(const float* row, int32_t begin,
                                              int32_t width) {
  return rows::narrow(rows::load_floats<aligned>(row, begin, width));
}

template <typename Element, int32_t num_chunks, bool aligned>
__device__ inline void load_table_row(const EmbeddingTable& table, int32_t id,
                                      rows::Bf16Chunk (&chunks)[num_chunks]) {
  const bool is_known = id >= 0 && id < table.num_rows;
  const Element* source = static_cast<const Element*>(table.data) +
                          int64_t{is_known ? id : 0} * table.width;
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) chunks[i] = {};
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    if (is_known)
      chunks[i] =
          table_chunk<aligned>(source, rows::chunk_begin(i), table.width);
}

}
