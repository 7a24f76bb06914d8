#ifndef GLM_PTX_WGMMA_BF16_HPP
#define GLM_PTX_WGMMA_BF16_HPP

#include <cstdint>

#include "native/ptx/wgmma.hpp"
#include "native/ptx/wgmma_operands.hpp"

namespace glm::ptx {

template <int32_t columns>
struct WgmmaBf16;

#define GLM_WGMMA_BF16(columns, count, a_at, b_at, flag_at)           \
  template <>                                                         \
  struct WgmmaBf16<columns> {                                         \
    __device__ static void multiply(float (&sum)[count], uint64_t a,  \
                                    uint64_t b, int32_t accumulate) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #flag_at      \
                   ", 0;\n"                                           \
                   "wgmma.mma_async.sync.aligned.m64n" #columns       \
                   "k16.f32.bf16.bf16 "                               \
                   "{" GLM_WGMMA_NAMES_##count                        \
                   "}, "                                              \
                   "%" #a_at ", %" #b_at ", p, 1, 1, 0, 0;\n}\n"      \
                   : GLM_WGMMA_SUMS_##count                           \
                   : "l"(a), "l"(b), "r"(accumulate));                \
    }                                                                 \
  };

GLM_WGMMA_BF16(8, 4, 4, 5, 6)
GLM_WGMMA_BF16(16, 8, 8, 9, 10)
GLM_WGMMA_BF16(24, 12, 12, 13, 14)
GLM_WGMMA_BF16(32, 16, 16, 17, 18)
GLM_WGMMA_BF16(40, 20, 20, 21, 22)
GLM_WGMMA_BF16(48, 24, 24, 25, 26)
GLM_WGMMA_BF16(56, 28, 28, 29, 30)
GLM_WGMMA_BF16(64, 32, 32, 33, 34)
GLM_WGMMA_BF16(80, 40, 40, 41, 42)
GLM_WGMMA_BF16(96, 48, 48, 49, 50)
GLM_WGMMA_BF16(112, 56, 56, 57, 58)
GLM_WGMMA_BF16(128, 64, 64, 65, 66)
GLM_WGMMA_BF16(144, 72, 72, 73, 74)
GLM_WGMMA_BF16(160, 80, 80, 81, 82)
GLM_WGMMA_BF16(176, 88, 88, 89, 90)
GLM_WGMMA_BF16(192, 96, 96, 97, 98)
GLM_WGMMA_BF16(208, 104, 104, 105, 106)
GLM_WGMMA_BF16(224, 112, 112, 113, 114)
GLM_WGMMA_BF16(240, 120, 120, 121, 122)
GLM_WGMMA_BF16(256, 128, 128, 129, 130)
#undef GLM_WGMMA_BF16

}

#endif
