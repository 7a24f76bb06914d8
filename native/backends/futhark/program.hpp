#pragma once

#include "kernels_cuda.h"

namespace glm::adapter::platform {

using Memory = CUdeviceptr;

constexpr bool kSharesMemory = false;

inline Memory memory_at(const void* address) {
  return reinterpret_cast<Memory>(address);
}

inline const void* address_of(Memory memory) {
  return reinterpret_cast<const void*>(memory);
}

}
