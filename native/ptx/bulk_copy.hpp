#pragma once

#include <cstdint>

#include "native/ptx/mbarrier.hpp"

namespace glm::ptx {

constexpr uint64_t kEvictFirst = 0x12F0000000000000ull;

__device__ inline void bulk_copy(void* destination, const void* source,
                                 uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(shared_address(destination)),
      "l"(source), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

__device__ inline void bulk_copy(uint32_t destination, const void* source,
                                 uint32_t bytes, uint32_t barrier,
                                 uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes."
      "L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(destination),
      "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ inline void bulk_copy(void* destination, const void* source,
                                 uint32_t bytes, uint64_t* barrier,
                                 uint64_t policy) {
  bulk_copy(shared_address(destination), source, bytes, shared_address(barrier),
            policy);
}

__device__ inline void bulk_prefetch(const void* source, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source),
               "r"(bytes)
               : "memory");
}

}
