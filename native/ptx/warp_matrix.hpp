#pragma once

#include <cstdint>

#include "native/ptx/bfloat16.hpp"

namespace glm::ptx {

struct Fragments {
  uint32_t at[4];
};

__device__ inline Fragments load_matrices(uint32_t shared) {
  Fragments f;
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(f.at[0]), "=r"(f.at[1]), "=r"(f.at[2]), "=r"(f.at[3])
      : "r"(shared)
      : "memory");
  return f;
}

__device__ inline Fragments load_transposed_matrices(uint32_t shared) {
  Fragments f;
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(f.at[0]), "=r"(f.at[1]), "=r"(f.at[2]), "=r"(f.at[3])
      : "r"(shared)
      : "memory");
  return f;
}

__device__ inline void multiply_bf16(float (&sum)[4], const uint32_t (&a)[4],
                                     uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void multiply_half(float (&sum)[4], const uint32_t (&a)[4],
                                     uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t half_of_e4m3(uint32_t codes) {
  uint32_t result;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
      : "=r"(result)
      : "h"(static_cast<uint16_t>(codes)));
  return result;
}

__device__ inline uint2 halves_of_e4m3(uint32_t codes) {
  uint2 result;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}\n"
      : "=r"(result.x), "=r"(result.y)
      : "r"(codes));
  return result;
}

__device__ inline uint32_t finite_halves(float low, float high) {
  uint32_t result;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;"
      : "=r"(result)
      : "f"(high), "f"(low));
  return result;
}

__device__ inline uint32_t halves_of_bf16(uint32_t pair) {
  const float2 values = floats_of_bfloat16s(pair);
  return finite_halves(values.x, values.y);
}

__device__ inline uint32_t halves(float low, float high) {
  uint32_t result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

template <int32_t barrier, int32_t threads>
__device__ inline void meet() {
  asm volatile("bar.sync %0, %1;" ::"n"(barrier), "n"(threads) : "memory");
}

}
