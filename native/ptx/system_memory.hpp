#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace glm::ptx {

__device__ inline void store_to_system(uint4* target, const uint4& words) {
  asm volatile(
      "st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(target),
      "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
      : "memory");
}

__device__ inline void store_to_system(uint2* target, const uint2& words) {
  asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(target),
               "r"(words.x), "r"(words.y)
               : "memory");
}

__device__ inline uint4 load_from_system(const uint4* source) {
  uint4 words;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(source)
               : "memory");
  return words;
}

__device__ inline void release_to_system(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value)
               : "memory");
}

__device__ inline uint32_t acquire_from_system(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(flag)
               : "memory");
  return value;
}

__device__ inline uint64_t nanoseconds() {
  uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

}
