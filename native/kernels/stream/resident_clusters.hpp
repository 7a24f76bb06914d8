#pragma once

#include <algorithm>
#include <cstdint>

#include "native/base/cuda.hpp"

namespace glm::kernels::stream {

template <typename... Parameters>
int32_t max_active_clusters(const char* where, const LaunchShape& shape,
                            void (*kernel)(Parameters...)) {
  allow_shared_bytes(where, reinterpret_cast<const void*>(kernel),
                     shape.shared_bytes);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = shape.cluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.cluster);
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), where);
  return std::max(clusters, 1);
}

}
