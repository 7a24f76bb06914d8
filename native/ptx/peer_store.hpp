#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace glm::ptx {

__device__ inline void store_to_peer(uint32_t address, float value,
                                     uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 "
      "[%0], %1, [%2];" ::"r"(address),
      "f"(value), "r"(barrier)
      : "memory");
}

__device__ inline void store_to_peer(uint32_t address, uint2 words,
                                     uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 "
      "[%0], {%1, %2}, [%3];" ::"r"(address),
      "r"(words.x), "r"(words.y), "r"(barrier)
      : "memory");
}

__device__ inline void store_to_peer(uint32_t address, float4 values,
                                     uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
      "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
      "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w), "r"(barrier)
      : "memory");
}

}
