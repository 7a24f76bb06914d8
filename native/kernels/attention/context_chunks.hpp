#ifndef GLM_KERNELS_ATTENTION_CONTEXT_CHUNKS_HPP
#define GLM_KERNELS_ATTENTION_CONTEXT_CHUNKS_HPP

#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels {

constexpr int32_t kFirstChunkTokens = 1280;
constexpr int32_t kChunkTokens = 512;
constexpr int32_t kSingleChunks = 14;
constexpr int32_t kDoubleChunks = 16;
constexpr int32_t kSingleUnits = kSingleChunks;
constexpr int32_t kDoubleUnits = kSingleUnits + 2 * kDoubleChunks;

__host__ __device__ constexpr int32_t chunk_begin(int32_t chunk) {
  if (chunk == 0) return 0;
  const int32_t further = chunk - 1;
  int32_t units = further;
  if (further > kSingleChunks) units += further - kSingleChunks;
  if (further > kSingleChunks + kDoubleChunks)
    units += 2 * (further - kSingleChunks - kDoubleChunks);
  return kFirstChunkTokens + units * kChunkTokens;
}

__host__ __device__ constexpr int32_t num_chunks(int32_t context_length) {
  if (context_length <= kFirstChunkTokens) return 1;
  const int32_t units = static_cast<int32_t>(
      ceil_divide(context_length - kFirstChunkTokens, kChunkTokens));
  if (units <= kSingleUnits) return 1 + units;
  if (units <= kDoubleUnits)
    return 1 + kSingleChunks + (units - kSingleUnits + 1) / 2;
  return 1 + kSingleChunks + kDoubleChunks + (units - kDoubleUnits + 3) / 4;
}

static_assert(chunk_begin(1) == 1280 && chunk_begin(15) == 8448 &&
              chunk_begin(31) == 24832 && chunk_begin(32) == 26880);
static_assert(num_chunks(0) == 1 && num_chunks(1280) == 1 &&
              num_chunks(1281) == 2 && num_chunks(8448) == 15 &&
              num_chunks(8449) == 16 && num_chunks(24833) == 32);

}

#endif
