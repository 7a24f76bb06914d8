#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "native/base/failure.hpp"

namespace glm {

inline void check(cudaError_t error, const char* where) {
  if (error == cudaSuccess) return;
  glm_status status =
      error == cudaErrorMemoryAllocation ? GLM_OUT_OF_MEMORY : GLM_DEVICE_ERROR;
  throw Failure(status, std::string(where) + ": " + cudaGetErrorName(error) +
                            ": " + cudaGetErrorString(error));
}

inline void allow_shared_bytes(const char* where, const void* kernel,
                               int64_t bytes) {
  if (bytes == 0) return;
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int64_t> allowed;
  int ordinal = 0;
  check(cudaGetDevice(&ordinal), where);
  const std::lock_guard lock(mutex);
  int64_t& most = allowed[{kernel, ordinal}];
  if (bytes <= most) return;
  check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes)),
      where);
  most = bytes;
}

struct LaunchShape {
  dim3 grid;
  dim3 block;
  int64_t shared_bytes = 0;
  uint32_t cluster = 1;
};

template <typename... Parameters, typename... Arguments>
void launch(const char* where, cudaStream_t stream, const LaunchShape& shape,
            void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  allow_shared_bytes(where, reinterpret_cast<const void*>(kernel),
                     shape.shared_bytes);
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = shape.cluster;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel,
                           static_cast<Parameters>(arguments)...),
        where);
}

}
