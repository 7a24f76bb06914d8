#pragma once

#include "native/ptx/wgmma_operands.hpp"

#define GLM_WGMMA_TRANSPOSED(name, form, columns, count, a0, a1, a2, a3, b_at, \
                             flag_at)                                          \
  template <>                                                                  \
  struct name<columns> {                                                       \
    __device__ static void multiply(float (&sum)[count],                       \
                                    const uint32_t (&a)[4], uint64_t b,        \
                                    int32_t accumulate) {                      \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #flag_at               \
                   ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #columns form           \
                   " {" GLM_WGMMA_NAMES_##count                                \
                   "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_at      \
                   ", p, 1, 1, 1;\n}\n"                                        \
                   : GLM_WGMMA_SUMS_##count                                    \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),       \
                     "r"(accumulate));                                         \
    }                                                                          \
  };

#define GLM_WGMMA_TRANSPOSED_SIZES(define) \
  define(64, 32, 32, 33, 34, 35, 36, 37) define(128, 64, 64, 65, 66, 67, 68, 69)
