#pragma once

#include <cstdint>

#include "native/base/host_device.hpp"

namespace glm {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

GLM_HOST_DEVICE inline uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

}
