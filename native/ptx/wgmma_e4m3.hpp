#pragma once

#include <cstdint>

#include "native/ptx/wgmma.hpp"
#include "native/ptx/wgmma_operands.hpp"

namespace glm::ptx {

template <int32_t columns>
struct WgmmaE4m3;

#define GLM_WGMMA_E4M3(...) \
  GLM_WGMMA(WgmmaE4m3, "k32.f32.e4m3.e4m3", "", __VA_ARGS__)
GLM_WGMMA_SIZES(GLM_WGMMA_E4M3)
#undef GLM_WGMMA_E4M3

}
