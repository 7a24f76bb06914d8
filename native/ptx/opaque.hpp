#pragma once

namespace glm::ptx {

template <typename Value>
__device__ inline const Value* opaque(const Value* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

}
