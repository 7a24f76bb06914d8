#pragma once

#include <cstdint>

#include "native/ptx/mbarrier.hpp"

namespace glm::ptx {

__device__ inline void async_copy(uint32_t shared, const void* source,
                                  int32_t source_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(source), "r"(source_bytes)
               : "memory");
}

__device__ inline void arrive_after_copies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                   shared_address(barrier))
               : "memory");
}

__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}
