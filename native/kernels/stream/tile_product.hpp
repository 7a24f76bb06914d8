#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/layout.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/wgmma_bf16.hpp"
#include "native/ptx/wgmma_e4m3.hpp"

namespace glm::kernels::stream {

constexpr int32_t kStepsPerTile = 4;
constexpr uint64_t kStepDescriptor = 2;

template <int32_t dtype, int32_t columns>
struct Multiplier;

template <int32_t columns>
struct Multiplier<GLM_DTYPE_F8_E4M3, columns> : ptx::WgmmaE4m3<columns> {};

template <int32_t columns>
struct Multiplier<GLM_DTYPE_BF16, columns> : ptx::WgmmaBf16<columns> {};

template <int32_t dtype, int32_t columns>
__device__ inline void multiply_steps(float (&sum)[columns / 2],
                                      uint64_t weights, uint64_t tokens,
                                      int32_t accumulate) {
#pragma unroll
  for (int32_t step = 0; step < kStepsPerTile; ++step) {
    Multiplier<dtype, columns>::multiply(sum, weights + step * kStepDescriptor,
                                         tokens + step * kStepDescriptor,
                                         step == 0 ? accumulate : 1);
  }
}

template <int32_t count>
__device__ inline void clear(float (&values)[count]) {
#pragma unroll
  for (int32_t i = 0; i < count; ++i) values[i] = 0.0f;
}

template <int32_t columns>
__device__ inline void begin_part(float (&part)[columns / 2], uint64_t weights,
                                  uint64_t tokens) {
  ptx::hold(part);
  ptx::wgmma_fence();
  multiply_steps<GLM_DTYPE_F8_E4M3, columns>(part, weights, tokens, 0);
  ptx::wgmma_commit();
}

template <int32_t columns, int32_t count>
__device__ inline void multiply_interleaved(float (&parts)[count][columns / 2],
                                            const uint64_t (&weights)[count],
                                            const uint64_t (&tokens)[count]) {
  ptx::wgmma_fence();
#pragma unroll
  for (int32_t step = 0; step < kStepsPerTile; ++step) {
#pragma unroll
    for (int32_t i = 0; i < count; ++i) {
      Multiplier<GLM_DTYPE_F8_E4M3, columns>::multiply(
          parts[i], weights[i] + step * kStepDescriptor,
          tokens[i] + step * kStepDescriptor, step == 0 ? 0 : 1);
    }
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
}

struct ProductLane {
  int32_t channel;
  int32_t token;

  __device__ explicit ProductLane(int32_t warpgroup_thread)
      : channel(warpgroup_thread / 32 * 16 + warpgroup_thread % 32 / 4),
        token(warpgroup_thread % 4 * 2) {}

  __device__ int32_t channel_of(int32_t index) const {
    return channel + index / 2 % 2 * 8;
  }
  __device__ int32_t token_of(int32_t index) const {
    return token + index / 4 * 8 + index % 2;
  }
};

}
