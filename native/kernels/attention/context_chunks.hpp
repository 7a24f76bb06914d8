#ifndef GLM_KERNELS_ATTENTION_CONTEXT_CHUNKS_HPP
#define GLM_KERNELS_ATTENTION_CONTEXT_CHUNKS_HPP

#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels {

constexpr int32_t kChunkTokens = 512;
constexpr int32_t kSingleChunks = 16;
constexpr int32_t kDoubleChunks = 16;
constexpr int32_t kSingleUnits = kSingleChunks;
constexpr int32_t kDoubleUnits = kSingleUnits + 2 * kDoubleChunks;

__host__ __device__ constexpr int32_t chunk_begin(int32_t chunk) {
  int32_t units = chunk;
  if (chunk > kSingleChunks) units += chunk - kSingleChunks;
  if (chunk > kSingleChunks + kDoubleChunks)
    units += 2 * (chunk - kSingleChunks - kDoubleChunks);
  return units * kChunkTokens;
}

__host__ __device__ constexpr int32_t num_chunks(int32_t context_length) {
  const int32_t units =
      static_cast<int32_t>(ceil_divide(context_length, kChunkTokens));
  if (units <= 1) return 1;
  if (units <= kSingleUnits) return units;
  if (units <= kDoubleUnits)
    return kSingleChunks + (units - kSingleUnits + 1) / 2;
  return kSingleChunks + kDoubleChunks + (units - kDoubleUnits + 3) / 4;
}

static_assert(chunk_begin(16) == 8192 && chunk_begin(32) == 24576 &&
              chunk_begin(33) == 26624);
static_assert(num_chunks(0) == 1 && num_chunks(8192) == 16 &&
              num_chunks(8193) == 17 && num_chunks(24577) == 33);

}

#endif
