#ifndef GLM_KERNELS_PREFILL_ATTENTION_F8_TILE_HPP
#define GLM_KERNELS_PREFILL_ATTENTION_F8_TILE_HPP

#include <cuda_bf16.h>

#include "native/kernels/prefill_attention/code_stream.hpp"

namespace glm::kernels::prefill_attention_detail {

constexpr int32_t kRowsAtOnce = 8;
constexpr int32_t kLaneChunks = kBlockHalfBytes / kChunkBytes / kWarpThreads;
constexpr uint32_t kFirstPair = 0x9180;
constexpr uint32_t kSecondPair = 0xB3A2;
constexpr uint32_t kWidenedBits = 0x87F087F0;
constexpr uint32_t kBf16TwoTo120 = 0x7B807B80;
constexpr uint32_t kBf16Past448 = 0x43F043F0;
constexpr uint32_t kSignBits = 0x80808080;
constexpr uint32_t kLastBits = 0x01010101;
constexpr uint32_t kMagnitudes = 0x7FFF7FFF;

template <int32_t halves>
struct F8Tiling : Tiling<halves> {
  static constexpr bool kHasScales = true;
  static constexpr int32_t kCodeHalves = (halves + 1) / 2;
  static constexpr int32_t kProducerRegisters = halves < 4 ? 72 : 56;
  static constexpr int32_t kConsumerRegisters = halves < 4 ? 216 : 224;
  static constexpr int32_t kChunksAtOnce = halves < 4 ? 4 : 2;
  static constexpr int32_t kTileProducers = 4;
  static constexpr int32_t kQueryThreads = kWarpgroupThreads;
  static constexpr int32_t kStagedBlocks = 3;
  static constexpr int32_t kWarpStagingBytes = kStagedBlocks * kBlockHalfBytes;
  static constexpr int32_t kSharedBytes =
      Tiling<halves>::kSharedBytes + kTileProducers * kWarpStagingBytes;
  static_assert(Tiling<halves>::kKeyBlocks * kCodeHalves ==
                    kTileProducers * kWarpTileCopies,
                "each warp widens as many blocks");
};

__device__ inline uint32_t widen_pair(uint32_t codes, uint32_t selector,
                                      uint32_t factor) {
  uint32_t extended;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(extended) : "r"(codes), "r"(selector));
  uint32_t pair;
  asm("mul.rn.bf16x2 %0, %1, %2;"
      : "=r"(pair)
      : "r"(extended << 4 & kWidenedBits), "r"(factor));
  return pair;
}

__device__ inline uint4 widen_words(uint32_t first, uint32_t second,
                                    uint32_t factor) {
  return {widen_pair(first, kFirstPair, factor),
          widen_pair(first, kSecondPair, factor),
          widen_pair(second, kFirstPair, factor),
          widen_pair(second, kSecondPair, factor)};
}

__device__ inline uint32_t past_largest(uint32_t codes) {
  return (codes & ~kSignBits) + kLastBits;
}

__device__ inline bool has_nan(const uint4& codes) {
  return ((past_largest(codes.x) | past_largest(codes.y) |
           past_largest(codes.z) | past_largest(codes.w)) &
          kSignBits) != 0;
}

__device__ inline uint32_t restore_nan(uint32_t pair) {
  uint32_t mask;
  asm("set.eq.u32.bf16x2 %0, %1, %2;"
      : "=r"(mask)
      : "r"(pair & kMagnitudes), "r"(kBf16Past448));
  return pair | mask;
}

__device__ inline void restore_nan(uint4& pairs) {
  pairs = {restore_nan(pairs.x), restore_nan(pairs.y), restore_nan(pairs.z),
           restore_nan(pairs.w)};
}

__device__ inline void widen_chunk(const uint4& codes, uint32_t factor,
                                   uint8_t* half, int32_t row, int32_t byte) {
  uint4 low = widen_words(codes.x, codes.y, factor);
  uint4 high = widen_words(codes.z, codes.w, factor);
  if (has_nan(codes)) {
    restore_nan(low);
    restore_nan(high);
  }
  *reinterpret_cast<uint4*>(half + swizzle(row, byte)) = low;
  *reinterpret_cast<uint4*>(half + swizzle(row, byte + kChunkBytes)) = high;
}

template <typename Tile>
__device__ inline void widen_block(const uint8_t* codes, int32_t code_half,
                                   int32_t num_tokens, uint8_t* destination) {
  int32_t lane = threadIdx.x % kWarpThreads;
  asm volatile("" : "+r"(lane));
  const int32_t row = lane % kRowsAtOnce;
  const int32_t chunk = lane / kRowsAtOnce;
#pragma unroll
  for (int32_t begin = 0; begin < kLaneChunks; begin += Tile::kChunksAtOnce) {
    uint4 chunks[Tile::kChunksAtOnce];
#pragma unroll
    for (int32_t i = 0; i < Tile::kChunksAtOnce; ++i)
      chunks[i] = *reinterpret_cast<const uint4*>(
          codes + (begin + i) / 2 * kRowsAtOnce * kHalfBytes +
          swizzle(row, ((begin + i) % 2 * 4 + chunk) * kChunkBytes));
#pragma unroll
    for (int32_t i = 0; i < Tile::kChunksAtOnce; ++i) {
      const int32_t half = code_half * 2 + (begin + i) % 2;
      if (half >= Tile::kHalves) continue;
      const int32_t first_row = (begin + i) / 2 * kRowsAtOnce;
      widen_chunk(
          chunks[i], first_row + row < num_tokens ? kBf16TwoTo120 : 0,
          destination + half * Tile::kTileHalfBytes + first_row * kHalfBytes,
          row, chunk * 2 * kChunkBytes);
    }
  }
}

}

#endif
