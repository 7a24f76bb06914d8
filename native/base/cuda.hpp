#ifndef GLM_BASE_CUDA_HPP
#define GLM_BASE_CUDA_HPP

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "native/base/failure.hpp"

namespace glm {

inline void check(cudaError_t error, const char* where) {
  if (error == cudaSuccess) return;
  glm_status status =
      error == cudaErrorMemoryAllocation ? GLM_OUT_OF_MEMORY : GLM_DEVICE_ERROR;
  throw Failure(status, std::string(where) + ": " + cudaGetErrorName(error) +
                            ": " + cudaGetErrorString(error));
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
  if (shape.shared_bytes > 0) {
    check(cudaFuncSetAttribute(kernel,
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          where);
  }
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

#endif
