#ifndef GLM_BACKENDS_CUDA_SCRATCH_HPP
#define GLM_BACKENDS_CUDA_SCRATCH_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/backends/cuda/regions.hpp"

namespace glm::cuda {

struct ScratchNeed {
  Region region;
  int64_t (*bytes)(const glm_workspace_shape& shape);
};

int64_t no_scratch(const glm_workspace_shape& shape);

extern const ScratchNeed kScratchNeeds[kNumRegions];

}

#endif
