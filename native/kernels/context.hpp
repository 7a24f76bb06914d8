#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "glm/backend.h"

namespace glm::collectives {
class PeerRank;
}

namespace glm::kernels {

struct Scratch {
  void* data = nullptr;
  int64_t bytes = 0;
};

struct Context {
  cudaStream_t stream = nullptr;
  int32_t num_multiprocessors = 0;
  Scratch scratch;
  int32_t capability = 9;
  collectives::PeerRank* peers = nullptr;
};

}
