#pragma once

#include <cstdint>

#include "native/ptx/wgmma.hpp"
#include "native/ptx/wgmma_operands.hpp"

namespace glm::ptx {

template <int32_t columns>
struct WgmmaBf16;

#define GLM_WGMMA_BF16(...) \
  GLM_WGMMA(WgmmaBf16, "k16.f32.bf16.bf16", ", 0, 0", __VA_ARGS__)
GLM_WGMMA_SIZES(GLM_WGMMA_BF16)
#undef GLM_WGMMA_BF16

}
