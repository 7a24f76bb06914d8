#pragma once

#include <cstdint>

#include "native/kernels/layout.hpp"

namespace glm::kernels::prefill_attention_detail {

constexpr int32_t kWarpThreads = 32;
constexpr int32_t kWarpgroupThreads = 128;
constexpr int32_t kNumConsumers = 2;
constexpr int32_t kNumConsumerWarps = kNumConsumers * 4;
constexpr int32_t kConsumerRows = 64;
constexpr int32_t kRowTile = kNumConsumers * kConsumerRows;
constexpr int32_t kNumThreads = (kNumConsumers + 1) * kWarpgroupThreads;
constexpr int32_t kMaxSegments = 256;
constexpr int32_t kHalfDims = kHalfBytes / 2;
constexpr int32_t kHalfChunks = kHalfBytes / kChunkBytes;
constexpr int32_t kBlockHalfBytes = kBlockTokens * kHalfBytes;

struct Bf16Products;

template <int32_t halves>
struct Tiling {
  using Products = Bf16Products;
  static constexpr bool kHasScales = false;
  static constexpr int32_t kHalves = halves;
  static constexpr int32_t kKeys = halves <= 2 ? 128 : 64;
  static constexpr int32_t kStages = 2;
  static constexpr int32_t kQueryBuffers = halves <= 2 ? 2 : 1;
  static constexpr int32_t kValueColumns = halves % 2 == 0 ? 128 : 64;
  static constexpr int32_t kValueParts = halves * kHalfDims / kValueColumns;
  static constexpr int32_t kKeyBlocks = kKeys / kBlockTokens;
  static constexpr int32_t kNumCopies = kKeyBlocks * halves;
  static constexpr int32_t kTileHalfBytes = kKeys * kHalfBytes;
  static constexpr int32_t kTileBytes = halves * kTileHalfBytes;
  static constexpr int32_t kQueryHalfBytes = kRowTile * kHalfBytes;
  static constexpr int32_t kQueryBytes = halves * kQueryHalfBytes;
  static constexpr int32_t kQueryRowChunks = halves * kHalfChunks;
  static constexpr int32_t kQueryChunks = kRowTile * kQueryRowChunks;
  static constexpr int32_t kProducerRegisters = 56;
  static constexpr int32_t kConsumerRegisters = 224;
  static constexpr int32_t kTileProducers = 1;
  static constexpr int32_t kQueryThreads = 2 * kWarpThreads;
  static constexpr int32_t kSwizzlePeriod = 1024;
  static constexpr int32_t kSharedBytes =
      kQueryBuffers * kQueryBytes + 2 * kStages * kTileBytes + kSwizzlePeriod;
  static_assert(kNumCopies <= kWarpThreads, "every copy needs its own lane");
};

struct Parameters {
  const void* query;
  void* output;
  glm_kv_cache cache;
  glm_segments segments;
  int32_t segment_begin;
  int32_t segment_end;
  int32_t num_heads;
  int32_t group;
  int32_t layer;
  float exponent_factor;
};

}
