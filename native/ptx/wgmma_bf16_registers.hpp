#pragma once

#include <cstdint>

#include "native/ptx/wgmma.hpp"
#include "native/ptx/wgmma_operands.hpp"
#include "native/ptx/wgmma_transposed.hpp"

namespace glm::ptx {

template <int32_t columns>
struct WgmmaBf16Registers;

template <int32_t columns>
struct WgmmaBf16RegistersTransposed;

#define GLM_WGMMA_REGISTERS(columns, count, a0, a1, a2, a3, b_at)         \
  template <>                                                             \
  struct WgmmaBf16Registers<columns> {                                    \
    __device__ static void multiply(float (&sum)[count],                  \
                                    const uint32_t (&a)[4], uint64_t b) { \
      asm volatile(                                                       \
          "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                      \
          "wgmma.mma_async.sync.aligned.m64n" #columns                    \
          "k16.f32.bf16.bf16 {" GLM_WGMMA_NAMES_##count                   \
          "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_at          \
          ", p, 1, 1, 0;\n}\n"                                            \
          : GLM_WGMMA_SUMS_##count                                        \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));          \
    }                                                                     \
  };

GLM_WGMMA_REGISTERS(32, 16, 16, 17, 18, 19, 20)
GLM_WGMMA_REGISTERS(64, 32, 32, 33, 34, 35, 36)
GLM_WGMMA_REGISTERS(128, 64, 64, 65, 66, 67, 68)
GLM_WGMMA_REGISTERS(256, 128, 128, 129, 130, 131, 132)

#define GLM_WGMMA_BF16_TRANSPOSED(...)                                    \
  GLM_WGMMA_TRANSPOSED(WgmmaBf16RegistersTransposed, "k16.f32.bf16.bf16", \
                       __VA_ARGS__)
GLM_WGMMA_TRANSPOSED_SIZES(GLM_WGMMA_BF16_TRANSPOSED)

#undef GLM_WGMMA_REGISTERS
#undef GLM_WGMMA_BF16_TRANSPOSED

}
