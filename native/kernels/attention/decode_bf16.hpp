#ifndef GLM_KERNELS_ATTENTION_DECODE_BF16_HPP
#define GLM_KERNELS_ATTENTION_DECODE_BF16_HPP

#include "native/kernels/attention/decode_items.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_matrix.hpp"

namespace glm::kernels::decode {

template <typename S>
struct Bf16Products {
  static constexpr int32_t kChunkDims = 8;
  static constexpr int32_t kStepsAhead = S::kSteps <= 8 ? 4 : 2;

  __device__ static uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }

  __device__ static void load_query(const uint8_t* rows,
                                    uint32_t (&query)[S::kSteps][4]) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const uint32_t place = ptx::shared_address(rows) +
                           lane % 16 * S::kQueryStride +
                           lane / 16 * kChunkBytes;
#pragma unroll
    for (int32_t step = 0; step < S::kSteps; ++step) {
      const ptx::Fragments fragments = ptx::load_matrices(place + step * 32);
#pragma unroll
      for (int32_t part = 0; part < 4; ++part)
        query[step][part] = fragments.at[part];
    }
  }

  __device__ static __forceinline__ void score_part(
      const uint32_t (&query)[S::kSteps][4], uint32_t blocks,
      float (&scores)[2 * kPartBlocks][4]) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t token = lane % 8 + lane / 16 * 8;
    const int32_t chunk = lane / 8 % 2;
#pragma unroll
    for (int32_t first = 0; first < S::kSteps; first += kStepsAhead) {
      ptx::Fragments keys[kStepsAhead][kPartBlocks];
#pragma unroll
      for (int32_t i = 0; i < kStepsAhead * kPartBlocks; ++i) {
        const int32_t step = first + i / kPartBlocks;
        keys[i / kPartBlocks][i % kPartBlocks] = ptx::load_matrices(
            blocks + i % kPartBlocks * S::kBlockBytes +
            step / 4 * kHalfBlockBytes +
            swizzle(token, step % 4 * 32 + chunk * kChunkBytes));
      }
#pragma unroll
      for (int32_t i = 0; i < kStepsAhead * kPartBlocks * 2; ++i) {
        const auto& step = query[first + i / (kPartBlocks * 2)];
        const auto& key = keys[i / (kPartBlocks * 2)][i / 2 % kPartBlocks];
        ptx::multiply_bf16(scores[i % (kPartBlocks * 2)], step,
                           key.at[i % 2 * 2], key.at[i % 2 * 2 + 1]);
      }
    }
  }

  template <typename Clear>
  __device__ static __forceinline__ void add_values(const uint4& packed,
                                                    uint32_t low, uint32_t high,
                                                    const Clear& clear,
                                                    float (*sums)[4]) {
    const uint32_t weights[4] = {packed.x, packed.y, packed.z, packed.w};
    ptx::multiply_bf16(sums[0], weights, clear(low, 0), clear(high, 8));
  }

  __device__ static float2 pair_of(const float (*sums)[4], int32_t pair,
                                   int32_t part) {
    return make_float2(sums[pair][part * 2], sums[pair][part * 2 + 1]);
  }

  __device__ static int32_t dim_of(int32_t pair, int32_t lane) {
    return pair * 8 + lane % 4 * 2;
  }
};

}

#endif
