#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "native/collectives/peer/stop.hpp"
#include "native/ptx/system_memory.hpp"

namespace glm::collectives {

__device__ inline bool must_stop(const Stop& stop, uint32_t peer,
                                 uint64_t begin) {
  if (ptx::acquire_from_system(stop.record) == kRunning) {
    if (ptx::nanoseconds() - begin < stop.limit_ns) return false;
    const uint32_t late = kLate | stop.rank << 8 | peer << 16;
    atomicCAS_system(stop.record, uint32_t{kRunning}, late);
  }
  ptx::release_to_system(stop.has_stopped, 1);
  return true;
}

template <typename Late, typename Condition>
__device__ inline bool wait_until(const Stop& stop, Late&& late_peer,
                                  Condition&& holds) {
  constexpr uint32_t kLooksAtOwnFlag = 64;
  constexpr uint32_t kLooksAtHost = 8192;
  if (holds()) return true;
  const uint64_t begin = ptx::nanoseconds();
  for (uint32_t looks = 1;; ++looks) {
    if (holds()) return true;
    if (looks % kLooksAtOwnFlag != 0) continue;
    if (ptx::acquire_from_system(stop.has_stopped) != 0) return false;
    if (looks % kLooksAtHost == 0 && must_stop(stop, late_peer(), begin))
      return false;
  }
}

}
