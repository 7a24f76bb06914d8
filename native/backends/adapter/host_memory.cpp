#include "host_memory.hpp"

#include <cstdlib>
#include <string>

#include "native/base/failure.hpp"

namespace glm::adapter {

void* allocate_host(int64_t bytes) {
  void* const block = std::calloc(1, static_cast<size_t>(bytes + kAlignment));
  if (block == nullptr)
    throw Failure(GLM_OUT_OF_MEMORY, "allocate: cannot allocate " +
                                         std::to_string(bytes) + " bytes");
  void** const aligned = reinterpret_cast<void**>(
      (reinterpret_cast<uintptr_t>(block) / kAlignment + 1) * kAlignment);
  aligned[-1] = block;
  return aligned;
}

void release_host(void* memory) {
  if (memory != nullptr) std::free(static_cast<void**>(memory)[-1]);
}

}
