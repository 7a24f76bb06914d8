#pragma once

#include <cstdint>

namespace glm::kernels::mixture {

constexpr int32_t kWarpThreads = 32;
constexpr int32_t kMaxLocalExperts = 256;
constexpr int32_t kMaxListTokens = kWarpThreads;
constexpr int32_t kMaxAssignments = 4096;
constexpr int32_t kMaxTopK = 64;
constexpr int32_t kMaxLists =
    kMaxLocalExperts + kMaxAssignments / kMaxListTokens;
static_assert(kMaxTopK <= kMaxAssignments / kMaxListTokens,
              "kMaxListTokens is too large for kMaxTopK");
constexpr int32_t kMaxRowUnits = 2048;
constexpr int32_t kSmallGateUpRows = 32;
constexpr int32_t kSmallDownRows = 64;
constexpr int32_t kFewColumns = 8;
constexpr int32_t kLineValues = 32;
constexpr int32_t kFewestDiscardTokens = 17;

struct Counters {
  uint32_t gate_up_done[kMaxLists];
  uint32_t is_encoded[kMaxLists];
  uint32_t down_done[kMaxRowUnits];
};

struct Control {
  uint32_t epoch;
  uint32_t next_unit;
  uint32_t unused[30];
  Counters counters[2];
};

}
