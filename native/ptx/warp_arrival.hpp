#pragma once

#include <cstdint>

#include "native/ptx/mbarrier.hpp"

namespace glm::ptx {

constexpr uint32_t kWarpArrivals = 32;

__device__ inline void warp_arrive(uint64_t* barrier) {
  barrier_arrive(barrier);
}

}
