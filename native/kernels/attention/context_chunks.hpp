#ifndef GLM_KERNELS_ATTENTION_CONTEXT_CHUNKS_HPP
#define GLM_KERNELS_ATTENTION_CONTEXT_CHUNKS_HPP

#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels {

constexpr int32_t kChunkTokens = 512;
constexpr int32_t kSingleChunks = 8;
constexpr int32_t kDoubleChunks = 8;
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
  if (units <= kDoubleUnits) return kSingleChunks + (units - kSingleUnits + 1) / 2;
  return kSingleChunks + kDoubleChunks + (units - kDoubleUnits + 3) / 4;
}

static_assert(chunk_begin(8) == 4096 && chunk_begin(16) == 12288 &&
              chunk_begin(17) == 14336);
static_assert(num_chunks(0) == 1 && num_chunks(4096) == 8 &&
              num_chunks(4097) == 9 && num_chunks(12289) == 17);

}

#endif
