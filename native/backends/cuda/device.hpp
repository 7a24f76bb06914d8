#pragma once

#include <cuda_runtime.h>

#include <array>
#include <memory>
#include <string>

#include "glm/backend.h"
#include "native/backends/cuda/regions.hpp"
#include "native/backends/cuda/staging.hpp"
#include "native/collectives/peer/peer_rank.hpp"
#include "native/kernels/context.hpp"

struct glm_group {
  glm::collectives::PeerGroup peers;
};

struct glm_device {
  int32_t ordinal = 0;
  int32_t num_multiprocessors = 0;
  int32_t capability = 0;
  cudaStream_t stream = nullptr;
  bool is_capturing = false;
  bool is_lost = false;
  std::string loss;
  std::array<glm::kernels::Scratch, glm::cuda::kNumRegions> scratch = {};
  std::unique_ptr<glm::cuda::Staging> staging;
  std::unique_ptr<glm::collectives::PeerRank> peers;
  glm_message message = {};
};

namespace glm::cuda {

void use(glm_device& device);
void settle(glm_device& device);
void expect_no_capture(const glm_device& device, const char* where);
void expect_group(const glm_device& device, const char* where);
kernels::Context context_of(const glm_device& device, Region region);

}
