#pragma once

#include <cuda.h>

#include <cstdint>

#include "native/ptx/mbarrier.hpp"

namespace glm::ptx {

__device__ inline void tensor_prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ inline void tensor_copy(void* destination, const CUtensorMap* map,
                                   int32_t column, int32_t row,
                                   uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(destination)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

__device__ inline void tensor_copy_multicast(void* destination,
                                             const CUtensorMap* map,
                                             int32_t column, int32_t row,
                                             uint64_t* barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::"
      "complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], "
      "%5;" ::"r"(shared_address(destination)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(mask)
      : "memory");
}

}
