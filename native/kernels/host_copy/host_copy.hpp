#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace glm::kernels {

struct HostCopy {
  void* destination = nullptr;
  const void* source = nullptr;
  int64_t bytes = 0;
};

bool is_short_copy(const char* where, const HostCopy& copy, cudaMemoryType from,
                   cudaMemoryType to);

void host_copy(const char* where, cudaStream_t stream, const HostCopy& copy);

}
