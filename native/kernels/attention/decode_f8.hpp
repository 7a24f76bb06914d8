#ifndef GLM_KERNELS_ATTENTION_DECODE_F8_HPP
#define GLM_KERNELS_ATTENTION_DECODE_F8_HPP

#include "native/kernels/attention/decode_items.hpp"
#include "native/ptx/warp_matrix.hpp"

namespace glm::kernels::decode {

template <typename S>
struct F8Products {
  static constexpr int32_t kChunkDims = 16;
  static constexpr int32_t kStepsAhead = S::kSteps <= 8 ? 8 : 4;

  __device__ static uint32_t pack(float low, float high) {
    return ptx::halves(low, high);
  }

  __device__ static void load_query(const uint8_t* rows,
                                    uint32_t (&query)[S::kSteps][4]) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
    for (int32_t step = 0; step < S::kSteps; ++step) {
#pragma unroll
      for (int32_t part = 0; part < 2; ++part) {
        const uint2 four = *reinterpret_cast<const uint2*>(
            rows + (lane / 4 + part * 8) * S::kQueryStride + step * 32 +
            lane % 4 * 8);
        query[step][part] = ptx::halves_of_bf16(four.x);
        query[step][part + 2] = ptx::halves_of_bf16(four.y);
      }
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
      ptx::Fragments keys[kStepsAhead / 2][kPartBlocks];
#pragma unroll
      for (int32_t i = 0; i < kStepsAhead; ++i) {
        const int32_t step = first + i / kPartBlocks * 2;
        keys[i / kPartBlocks][i % kPartBlocks] = ptx::load_matrices(
            blocks + i % kPartBlocks * S::kBlockBytes +
            step / 8 * kHalfBlockBytes +
            swizzle(token, step % 8 * kChunkBytes + chunk * kChunkBytes));
      }
#pragma unroll
      for (int32_t i = 0; i < kStepsAhead * kPartBlocks * 2; ++i) {
        const int32_t step = i / (kPartBlocks * 2);
        const auto& key = keys[step / 2][i / 2 % kPartBlocks];
        multiply(scores[i % (kPartBlocks * 2)], query[first + step],
                 key.at[i % 2 * 2 + step % 2]);
      }
    }
  }

  __device__ static void multiply(float (&sum)[4], const uint32_t (&query)[4],
                                  uint32_t codes) {
    ptx::multiply_half(sum, query, ptx::half_of_e4m3(codes),
                       ptx::half_of_e4m3(codes >> 16));
  }

  template <typename Clear>
  __device__ static __forceinline__ void add_values(const uint4& packed,
                                                    uint32_t low, uint32_t high,
                                                    const Clear& clear,
                                                    float (*sums)[4]) {
    const uint32_t weights[4] = {packed.x, packed.y, packed.z, packed.w};
    const uint32_t first = __byte_perm(low, 0, 0x3120);
    const uint32_t second = __byte_perm(high, 0, 0x3120);
#pragma unroll
    for (int32_t i = 0; i < 2; ++i)
      ptx::multiply_half(sums[i], weights,
                         clear(ptx::half_of_e4m3(first >> 16 * i), 0),
                         clear(ptx::half_of_e4m3(second >> 16 * i), 8));
  }

  __device__ static float2 pair_of(const float (*sums)[4], int32_t pair,
                                   int32_t part) {
    const int32_t even = pair / 2 * 2;
    const int32_t column = part * 2 + pair % 2;
    return make_float2(sums[even][column], sums[even + 1][column]);
  }

  __device__ static int32_t dim_of(int32_t pair, int32_t lane) {
    return pair / 2 * 16 + lane % 4 * 4 + pair % 2 * 2;
  }
};

}

#endif
