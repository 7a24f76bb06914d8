#ifndef GLM_KERNELS_SAMPLE_LIMITS_HPP
#define GLM_KERNELS_SAMPLE_LIMITS_HPP

#include <cstdint>

namespace glm::kernels::sampling {

constexpr int32_t kRowBlocks = 8;
constexpr int32_t kMaxVocab = 196608;

}

#endif
