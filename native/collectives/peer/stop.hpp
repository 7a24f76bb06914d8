#pragma once

#include <cstdint>

namespace glm::collectives {

enum StopReason : uint8_t { kRunning, kAborted, kLate };

struct StopRecord {
  uint8_t reason = kRunning;
  uint8_t rank = 0;
  uint8_t peer = 0;
};

constexpr StopRecord unpacked(uint32_t word) {
  return {static_cast<uint8_t>(word), static_cast<uint8_t>(word >> 8),
          static_cast<uint8_t>(word >> 16)};
}

struct Stop {
  uint32_t* record;
  uint32_t* has_stopped;
  uint64_t limit_ns;
  uint32_t rank;
};

}
