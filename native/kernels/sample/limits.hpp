#pragma once

#include <cstdint>

namespace glm::kernels::sampling {

constexpr int32_t kRowBlocks = 8;
constexpr int32_t kMaxVocab = 196608;

}
