#pragma once

#include <cuda_bf16.h>

#include "native/ptx/warp_matrix.hpp"
#include "native/ptx/wgmma_bf16.hpp"
#include "native/ptx/wgmma_bf16_registers.hpp"
#include "native/ptx/wgmma_f16.hpp"

namespace glm::kernels::prefill_attention_detail {

__device__ inline uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

struct Bf16Products {
  template <int32_t columns>
  using Scores = ptx::WgmmaBf16<columns>;
  template <int32_t columns>
  using Output = ptx::WgmmaBf16RegistersTransposed<columns>;
  __device__ static uint32_t pack(float low, float high) {
    return pack_bf16(low, high);
  }
};

struct F16Products {
  template <int32_t columns>
  using Scores = ptx::WgmmaF16<columns>;
  template <int32_t columns>
  using Output = ptx::WgmmaF16RegistersTransposed<columns>;
  __device__ static uint32_t pack(float low, float high) {
    return ptx::halves(low, high);
  }
};

}
