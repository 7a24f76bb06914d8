#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "native/collectives/peer/peer_rows.hpp"
#include "native/collectives/peer/stop.hpp"

namespace glm::collectives {

constexpr uint32_t kAbsent = 0xFFFFFFFFu;

struct Exchange {
  int32_t rank;
  bool is_sent;
  bool has_owners;
  bool is_scattered;
  bool is_summed;
  int32_t row_chunks;
  uint4* received;
  int32_t chunks_apart;
  uint4* sent[kMaxRanks];
  int64_t distance[kMaxRanks];
  Stop stop;
};

template <typename Value>
__device__ inline Value* at_distance(Value* own, int64_t distance) {
  return reinterpret_cast<Value*>(reinterpret_cast<char*>(own) + distance);
}

}
