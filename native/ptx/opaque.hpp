#ifndef GLM_PTX_OPAQUE_HPP
#define GLM_PTX_OPAQUE_HPP

namespace glm::ptx {

template <typename Value>
__device__ inline const Value* opaque(const Value* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

}

#endif
