#ifndef GLM_PTX_WGMMA_E4M3_HPP
#define GLM_PTX_WGMMA_E4M3_HPP

#include <cstdint>

#include "native/ptx/wgmma.hpp"
#include "native/ptx/wgmma_operands.hpp"

namespace glm::ptx {

template <int32_t columns>
struct WgmmaE4m3;

#define GLM_WGMMA_E4M3(columns, count, a_at, b_at, flag_at)           \
  template <>                                                         \
  struct WgmmaE4m3<columns> {                                         \
    __device__ static void multiply(float (&sum)[count], uint64_t a,  \
                                    uint64_t b, int32_t accumulate) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #flag_at      \
                   ", 0;\n"                                           \
                   "wgmma.mma_async.sync.aligned.m64n" #columns       \
                   "k32.f32.e4m3.e4m3 "                               \
                   "{" GLM_WGMMA_NAMES_##count                        \
                   "}, "                                              \
                   "%" #a_at ", %" #b_at ", p, 1, 1;\n}\n"            \
                   : GLM_WGMMA_SUMS_##count                           \
                   : "l"(a), "l"(b), "r"(accumulate));                \
    }                                                                 \
  };

GLM_WGMMA_E4M3(8, 4, 4, 5, 6)
GLM_WGMMA_E4M3(16, 8, 8, 9, 10)
GLM_WGMMA_E4M3(24, 12, 12, 13, 14)
GLM_WGMMA_E4M3(32, 16, 16, 17, 18)
GLM_WGMMA_E4M3(40, 20, 20, 21, 22)
GLM_WGMMA_E4M3(48, 24, 24, 25, 26)
GLM_WGMMA_E4M3(56, 28, 28, 29, 30)
GLM_WGMMA_E4M3(64, 32, 32, 33, 34)
GLM_WGMMA_E4M3(72, 36, 36, 37, 38)
GLM_WGMMA_E4M3(80, 40, 40, 41, 42)
GLM_WGMMA_E4M3(88, 44, 44, 45, 46)
GLM_WGMMA_E4M3(96, 48, 48, 49, 50)
GLM_WGMMA_E4M3(104, 52, 52, 53, 54)
GLM_WGMMA_E4M3(112, 56, 56, 57, 58)
GLM_WGMMA_E4M3(120, 60, 60, 61, 62)
GLM_WGMMA_E4M3(128, 64, 64, 65, 66)
GLM_WGMMA_E4M3(144, 72, 72, 73, 74)
GLM_WGMMA_E4M3(160, 80, 80, 81, 82)
GLM_WGMMA_E4M3(176, 88, 88, 89, 90)
GLM_WGMMA_E4M3(192, 96, 96, 97, 98)
GLM_WGMMA_E4M3(208, 104, 104, 105, 106)
GLM_WGMMA_E4M3(224, 112, 112, 113, 114)
GLM_WGMMA_E4M3(240, 120, 120, 121, 122)
GLM_WGMMA_E4M3(256, 128, 128, 129, 130)
#undef GLM_WGMMA_E4M3

}

#endif
