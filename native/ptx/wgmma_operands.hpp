#pragma once

#define GLM_WGMMA_SUMS(i) \
  "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])

#define GLM_WGMMA_NAMES_4 "%0, %1, %2, %3"
#define GLM_WGMMA_SUMS_4 GLM_WGMMA_SUMS(0)
#define GLM_WGMMA_NAMES_8 GLM_WGMMA_NAMES_4 ", %4, %5, %6, %7"
#define GLM_WGMMA_SUMS_8 GLM_WGMMA_SUMS_4, GLM_WGMMA_SUMS(4)
#define GLM_WGMMA_NAMES_12 GLM_WGMMA_NAMES_8 ", %8, %9, %10, %11"
#define GLM_WGMMA_SUMS_12 GLM_WGMMA_SUMS_8, GLM_WGMMA_SUMS(8)
#define GLM_WGMMA_NAMES_16 GLM_WGMMA_NAMES_12 ", %12, %13, %14, %15"
#define GLM_WGMMA_SUMS_16 GLM_WGMMA_SUMS_12, GLM_WGMMA_SUMS(12)
#define GLM_WGMMA_NAMES_20 GLM_WGMMA_NAMES_16 ", %16, %17, %18, %19"
#define GLM_WGMMA_SUMS_20 GLM_WGMMA_SUMS_16, GLM_WGMMA_SUMS(16)
#define GLM_WGMMA_NAMES_24 GLM_WGMMA_NAMES_20 ", %20, %21, %22, %23"
#define GLM_WGMMA_SUMS_24 GLM_WGMMA_SUMS_20, GLM_WGMMA_SUMS(20)
#define GLM_WGMMA_NAMES_28 GLM_WGMMA_NAMES_24 ", %24, %25, %26, %27"
#define GLM_WGMMA_SUMS_28 GLM_WGMMA_SUMS_24, GLM_WGMMA_SUMS(24)
#define GLM_WGMMA_NAMES_32 GLM_WGMMA_NAMES_28 ", %28, %29, %30, %31"
#define GLM_WGMMA_SUMS_32 GLM_WGMMA_SUMS_28, GLM_WGMMA_SUMS(28)
#define GLM_WGMMA_NAMES_36 GLM_WGMMA_NAMES_32 ", %32, %33, %34, %35"
#define GLM_WGMMA_SUMS_36 GLM_WGMMA_SUMS_32, GLM_WGMMA_SUMS(32)
#define GLM_WGMMA_NAMES_40 GLM_WGMMA_NAMES_36 ", %36, %37, %38, %39"
#define GLM_WGMMA_SUMS_40 GLM_WGMMA_SUMS_36, GLM_WGMMA_SUMS(36)
#define GLM_WGMMA_NAMES_44 GLM_WGMMA_NAMES_40 ", %40, %41, %42, %43"
#define GLM_WGMMA_SUMS_44 GLM_WGMMA_SUMS_40, GLM_WGMMA_SUMS(40)
#define GLM_WGMMA_NAMES_48 GLM_WGMMA_NAMES_44 ", %44, %45, %46, %47"
#define GLM_WGMMA_SUMS_48 GLM_WGMMA_SUMS_44, GLM_WGMMA_SUMS(44)
#define GLM_WGMMA_NAMES_52 GLM_WGMMA_NAMES_48 ", %48, %49, %50, %51"
#define GLM_WGMMA_SUMS_52 GLM_WGMMA_SUMS_48, GLM_WGMMA_SUMS(48)
#define GLM_WGMMA_NAMES_56 GLM_WGMMA_NAMES_52 ", %52, %53, %54, %55"
#define GLM_WGMMA_SUMS_56 GLM_WGMMA_SUMS_52, GLM_WGMMA_SUMS(52)
#define GLM_WGMMA_NAMES_60 GLM_WGMMA_NAMES_56 ", %56, %57, %58, %59"
#define GLM_WGMMA_SUMS_60 GLM_WGMMA_SUMS_56, GLM_WGMMA_SUMS(56)
#define GLM_WGMMA_NAMES_64 GLM_WGMMA_NAMES_60 ", %60, %61, %62, %63"
#define GLM_WGMMA_SUMS_64 GLM_WGMMA_SUMS_60, GLM_WGMMA_SUMS(60)
#define GLM_WGMMA_NAMES_68 GLM_WGMMA_NAMES_64 ", %64, %65, %66, %67"
#define GLM_WGMMA_SUMS_68 GLM_WGMMA_SUMS_64, GLM_WGMMA_SUMS(64)
#define GLM_WGMMA_NAMES_72 GLM_WGMMA_NAMES_68 ", %68, %69, %70, %71"
#define GLM_WGMMA_SUMS_72 GLM_WGMMA_SUMS_68, GLM_WGMMA_SUMS(68)
#define GLM_WGMMA_NAMES_76 GLM_WGMMA_NAMES_72 ", %72, %73, %74, %75"
#define GLM_WGMMA_SUMS_76 GLM_WGMMA_SUMS_72, GLM_WGMMA_SUMS(72)
#define GLM_WGMMA_NAMES_80 GLM_WGMMA_NAMES_76 ", %76, %77, %78, %79"
#define GLM_WGMMA_SUMS_80 GLM_WGMMA_SUMS_76, GLM_WGMMA_SUMS(76)
#define GLM_WGMMA_NAMES_84 GLM_WGMMA_NAMES_80 ", %80, %81, %82, %83"
#define GLM_WGMMA_SUMS_84 GLM_WGMMA_SUMS_80, GLM_WGMMA_SUMS(80)
#define GLM_WGMMA_NAMES_88 GLM_WGMMA_NAMES_84 ", %84, %85, %86, %87"
#define GLM_WGMMA_SUMS_88 GLM_WGMMA_SUMS_84, GLM_WGMMA_SUMS(84)
#define GLM_WGMMA_NAMES_92 GLM_WGMMA_NAMES_88 ", %88, %89, %90, %91"
#define GLM_WGMMA_SUMS_92 GLM_WGMMA_SUMS_88, GLM_WGMMA_SUMS(88)
#define GLM_WGMMA_NAMES_96 GLM_WGMMA_NAMES_92 ", %92, %93, %94, %95"
#define GLM_WGMMA_SUMS_96 GLM_WGMMA_SUMS_92, GLM_WGMMA_SUMS(92)
#define GLM_WGMMA_NAMES_100 GLM_WGMMA_NAMES_96 ", %96, %97, %98, %99"
#define GLM_WGMMA_SUMS_100 GLM_WGMMA_SUMS_96, GLM_WGMMA_SUMS(96)
#define GLM_WGMMA_NAMES_104 GLM_WGMMA_NAMES_100 ", %100, %101, %102, %103"
#define GLM_WGMMA_SUMS_104 GLM_WGMMA_SUMS_100, GLM_WGMMA_SUMS(100)
#define GLM_WGMMA_NAMES_108 GLM_WGMMA_NAMES_104 ", %104, %105, %106, %107"
#define GLM_WGMMA_SUMS_108 GLM_WGMMA_SUMS_104, GLM_WGMMA_SUMS(104)
#define GLM_WGMMA_NAMES_112 GLM_WGMMA_NAMES_108 ", %108, %109, %110, %111"
#define GLM_WGMMA_SUMS_112 GLM_WGMMA_SUMS_108, GLM_WGMMA_SUMS(108)
#define GLM_WGMMA_NAMES_116 GLM_WGMMA_NAMES_112 ", %112, %113, %114, %115"
#define GLM_WGMMA_SUMS_116 GLM_WGMMA_SUMS_112, GLM_WGMMA_SUMS(112)
#define GLM_WGMMA_NAMES_120 GLM_WGMMA_NAMES_116 ", %116, %117, %118, %119"
#define GLM_WGMMA_SUMS_120 GLM_WGMMA_SUMS_116, GLM_WGMMA_SUMS(116)
#define GLM_WGMMA_NAMES_124 GLM_WGMMA_NAMES_120 ", %120, %121, %122, %123"
#define GLM_WGMMA_SUMS_124 GLM_WGMMA_SUMS_120, GLM_WGMMA_SUMS(120)
#define GLM_WGMMA_NAMES_128 GLM_WGMMA_NAMES_124 ", %124, %125, %126, %127"
#define GLM_WGMMA_SUMS_128 GLM_WGMMA_SUMS_124, GLM_WGMMA_SUMS(124)

#define GLM_WGMMA(name, form, tail, columns, count, a_at, b_at, flag_at)  \
  template <>                                                             \
  struct name<columns> {                                                  \
    __device__ static void multiply(float (&sum)[count], uint64_t a,      \
                                    uint64_t b, int32_t accumulate) {     \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #flag_at          \
                   ", 0;\n"                                               \
                   "wgmma.mma_async.sync.aligned.m64n" #columns form      \
                   " {" GLM_WGMMA_NAMES_##count "}, %" #a_at ", %" #b_at  \
                                                ", p, 1, 1" tail ";\n}\n" \
                   : GLM_WGMMA_SUMS_##count                               \
                   : "l"(a), "l"(b), "r"(accumulate));                    \
    }                                                                     \
  };

#define GLM_WGMMA_SIZES(define)                                                \
  define(8, 4, 4, 5, 6) define(16, 8, 8, 9, 10) define(24, 12, 12, 13, 14)     \
      define(32, 16, 16, 17, 18) define(40, 20, 20, 21, 22)                    \
          define(48, 24, 24, 25, 26) define(56, 28, 28, 29, 30) define(        \
              64, 32, 32, 33, 34) define(72, 36, 36, 37, 38)                   \
              define(80, 40, 40, 41, 42) define(88, 44, 44, 45, 46) define(    \
                  96, 48, 48, 49, 50) define(104, 52, 52, 53, 54)              \
                  define(112, 56, 56, 57, 58) define(120, 60, 60, 61, 62)      \
                      define(128, 64, 64, 65, 66) define(144, 72, 72, 73, 74)  \
                          define(160, 80, 80, 81, 82) define(                  \
                              176, 88, 88, 89, 90) define(192, 96, 96, 97, 98) \
                              define(208, 104, 104, 105, 106)                  \
                                  define(224, 112, 112, 113, 114)              \
                                      define(240, 120, 120, 121, 122)          \
                                          define(256, 128, 128, 129, 130)
