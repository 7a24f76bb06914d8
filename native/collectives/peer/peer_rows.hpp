#pragma once

#include <cstdint>

namespace glm::collectives {

constexpr int32_t kMaxRanks = 8;
constexpr int32_t kChunkElements = 8;

struct PeerRows {
  int32_t count;
  int32_t num_owners;
  int32_t first_owner;
  int32_t width;
  void* of[kMaxRanks - 1];
};

}
