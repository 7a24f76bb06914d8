#ifndef GLM_PTX_WGMMA_BF16_REGISTERS_HPP
#define GLM_PTX_WGMMA_BF16_REGISTERS_HPP

#include <cstdint>

#include "native/ptx/wgmma.hpp"

namespace glm::ptx {

template <int32_t columns>
struct WgmmaBf16Registers;

template <>
struct WgmmaBf16Registers<32> {
  __device__ static void multiply(float (&sum)[16], const uint32_t (&a)[4],
                                  uint64_t b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15}, "
        "{%16, %17, %18, %19}, %20, p, 1, 1, 0;\n}\n"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]),
          "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]),
          "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]),
          "+f"(sum[14]), "+f"(sum[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};

template <>
struct WgmmaBf16Registers<64> {
  __device__ static void multiply(float (&sum)[32], const uint32_t (&a)[4],
                                  uint64_t b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        "%28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}\n"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]),
          "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]),
          "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]),
          "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
          "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]),
          "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]),
          "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
          "+f"(sum[30]), "+f"(sum[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};

template <>
struct WgmmaBf16Registers<128> {
  __device__ static void multiply(float (&sum)[64], const uint32_t (&a)[4],
                                  uint64_t b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
        "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
        "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}\n"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]),
          "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]),
          "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]),
          "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
          "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]),
          "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]),
          "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
          "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]),
          "+f"(sum[34]), "+f"(sum[35]), "+f"(sum[36]), "+f"(sum[37]),
          "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),
          "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]),
          "+f"(sum[46]), "+f"(sum[47]), "+f"(sum[48]), "+f"(sum[49]),
          "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]),
          "+f"(sum[54]), "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]),
          "+f"(sum[58]), "+f"(sum[59]), "+f"(sum[60]), "+f"(sum[61]),
          "+f"(sum[62]), "+f"(sum[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};

template <>
struct WgmmaBf16Registers<256> {
  __device__ static void multiply(float (&sum)[128], const uint32_t (&a)[4],
                                  uint64_t b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
        "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
        "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, "
        "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, "
        "%93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, "
        "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, "
        "%116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
        "%127}, "
        "{%128, %129, %130, %131}, %132, p, 1, 1, 0;\n}\n"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]),
          "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]),
          "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]),
          "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
          "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]),
          "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]),
          "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
          "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]),
          "+f"(sum[34]), "+f"(sum[35]), "+f"(sum[36]), "+f"(sum[37]),
          "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),
          "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]),
          "+f"(sum[46]), "+f"(sum[47]), "+f"(sum[48]), "+f"(sum[49]),
          "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]),
          "+f"(sum[54]), "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]),
          "+f"(sum[58]), "+f"(sum[59]), "+f"(sum[60]), "+f"(sum[61]),
          "+f"(sum[62]), "+f"(sum[63]), "+f"(sum[64]), "+f"(sum[65]),
          "+f"(sum[66]), "+f"(sum[67]), "+f"(sum[68]), "+f"(sum[69]),
          "+f"(sum[70]), "+f"(sum[71]), "+f"(sum[72]), "+f"(sum[73]),
          "+f"(sum[74]), "+f"(sum[75]), "+f"(sum[76]), "+f"(sum[77]),
          "+f"(sum[78]), "+f"(sum[79]), "+f"(sum[80]), "+f"(sum[81]),
          "+f"(sum[82]), "+f"(sum[83]), "+f"(sum[84]), "+f"(sum[85]),
          "+f"(sum[86]), "+f"(sum[87]), "+f"(sum[88]), "+f"(sum[89]),
          "+f"(sum[90]), "+f"(sum[91]), "+f"(sum[92]), "+f"(sum[93]),
          "+f"(sum[94]), "+f"(sum[95]), "+f"(sum[96]), "+f"(sum[97]),
          "+f"(sum[98]), "+f"(sum[99]), "+f"(sum[100]), "+f"(sum[101]),
          "+f"(sum[102]), "+f"(sum[103]), "+f"(sum[104]), "+f"(sum[105]),
          "+f"(sum[106]), "+f"(sum[107]), "+f"(sum[108]), "+f"(sum[109]),
          "+f"(sum[110]), "+f"(sum[111]), "+f"(sum[112]), "+f"(sum[113]),
          "+f"(sum[114]), "+f"(sum[115]), "+f"(sum[116]), "+f"(sum[117]),
          "+f"(sum[118]), "+f"(sum[119]), "+f"(sum[120]), "+f"(sum[121]),
          "+f"(sum[122]), "+f"(sum[123]), "+f"(sum[124]), "+f"(sum[125]),
          "+f"(sum[126]), "+f"(sum[127])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};

}

#endif
