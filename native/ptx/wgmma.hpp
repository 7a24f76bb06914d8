#pragma once

#include <cstdint>

namespace glm::ptx {

constexpr uint64_t kSwizzledDescriptor =
    (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 16);

__device__ inline uint64_t swizzled_descriptor(uint32_t shared) {
  return kSwizzledDescriptor | ((shared & 0x3FFFF) >> 4);
}

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int32_t pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

template <int32_t count>
__device__ inline void hold(float (&values)[count]) {
#pragma unroll
  for (int32_t i = 0; i < count; ++i)
    asm volatile("" : "+f"(values[i])::"memory");
}

template <int32_t registers>
__device__ inline void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int32_t registers>
__device__ inline void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

}
