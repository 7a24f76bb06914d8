#pragma once

#include "native/kernels/prefill_attention/code_stream.hpp"
#include "native/kernels/prefill_attention/products.hpp"

namespace glm::kernels::prefill_attention_detail {

constexpr int32_t kRowsAtOnce = 8;
constexpr int32_t kLaneChunks = kBlockHalfBytes / kChunkBytes / kWarpThreads;

template <int32_t halves>
struct F8Tiling : Tiling<halves> {
  using Products = F16Products;
  static constexpr bool kHasScales = true;
  static constexpr int32_t kCodeHalves = (halves + 1) / 2;
  static constexpr int32_t kProducerRegisters = 72;
  static constexpr int32_t kConsumerRegisters = 216;
  static constexpr int32_t kTileProducers = 4;
  static constexpr int32_t kQueryThreads = kWarpgroupThreads;
  static constexpr int32_t kStagedBlocks = 3;
  static constexpr int32_t kWarpStagingBytes = kStagedBlocks * kBlockHalfBytes;
  static constexpr int32_t kSharedBytes =
      Tiling<halves>::kSharedBytes + kTileProducers * kWarpStagingBytes;
  static_assert(Tiling<halves>::kKeyBlocks * kCodeHalves ==
                    kTileProducers * kWarpTileCopies,
                "every warp must convert the same number of blocks");
};

__device__ inline int32_t hidden_thread() {
  int32_t thread = threadIdx.x % kWarpgroupThreads;
  asm volatile("" : "+r"(thread));
  return thread;
}

struct LanePlaces {
  int32_t codes;
  int32_t pairs;
  __device__ LanePlaces() {
    const int32_t lane = hidden_thread() % kWarpThreads;
    const int32_t row = lane % kRowsAtOnce;
    const int32_t chunk = lane / kRowsAtOnce;
    codes = swizzle(row, chunk * kChunkBytes);
    pairs = swizzle(row, chunk * 2 * kChunkBytes);
  }
};

struct LaneCodes {
  uint4 chunks[kLaneChunks];
};

__device__ inline LaneCodes read_codes(const uint8_t* block,
                                       const LanePlaces& places) {
  LaneCodes codes;
#pragma unroll
  for (int32_t i = 0; i < kLaneChunks; ++i)
    codes.chunks[i] = *reinterpret_cast<const uint4*>(
        block + i / 2 * kRowsAtOnce * kHalfBytes +
        (places.codes ^ i % 2 * (kHalfBytes / 2)));
  return codes;
}

__device__ inline void clear_past(LaneCodes& codes, int32_t num_tokens) {
  const int32_t row = threadIdx.x % kRowsAtOnce;
#pragma unroll
  for (int32_t i = 0; i < kLaneChunks; ++i)
    if (i / 2 * kRowsAtOnce + row >= num_tokens) codes.chunks[i] = {0, 0, 0, 0};
}

__device__ inline uint4 f16_of_codes(uint32_t first, uint32_t second) {
  const uint2 low = ptx::halves_of_e4m3(first);
  const uint2 high = ptx::halves_of_e4m3(second);
  return {low.x, low.y, high.x, high.y};
}

template <typename Tile>
__device__ inline void store_f16(const LaneCodes& codes,
                                 const LanePlaces& places, int32_t code_half,
                                 uint8_t* destination) {
#pragma unroll
  for (int32_t i = 0; i < kLaneChunks; ++i) {
    const int32_t half = code_half * 2 + i % 2;
    if (half >= Tile::kHalves) continue;
    uint8_t* rows = destination + half * Tile::kTileHalfBytes +
                    i / 2 * kRowsAtOnce * kHalfBytes;
    const uint4& chunk = codes.chunks[i];
    *reinterpret_cast<uint4*>(rows + places.pairs) =
        f16_of_codes(chunk.x, chunk.y);
    *reinterpret_cast<uint4*>(rows + (places.pairs ^ kChunkBytes)) =
        f16_of_codes(chunk.z, chunk.w);
  }
}

}
