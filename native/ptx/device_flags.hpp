#pragma once

#include <cstdint>

namespace glm::ptx {

__device__ inline uint32_t load_acquire(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(flag)
               : "memory");
  return value;
}

__device__ inline void store_release(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value)
               : "memory");
}

__device__ inline void add_release(uint32_t* counter, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter),
               "r"(value)
               : "memory");
}

__device__ inline uint32_t fetch_add(uint32_t* counter, uint32_t value) {
  uint32_t previous;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(previous)
               : "l"(counter), "r"(value)
               : "memory");
  return previous;
}

__device__ inline void wait_until(const uint32_t* flag, uint32_t value) {
  while (load_acquire(flag) != value) __nanosleep(32);
}

}
