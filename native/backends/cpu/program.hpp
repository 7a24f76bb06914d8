#pragma once

#include "kernels_cpu.h"

namespace glm::adapter::platform {

using Memory = unsigned char*;

constexpr bool kSharesMemory = true;

inline Memory memory_at(const void* address) {
  return const_cast<Memory>(static_cast<const unsigned char*>(address));
}

inline const void* address_of(Memory memory) { return memory; }

}
