#pragma once

#include <cstdint>

#include "native/ptx/wgmma.hpp"
#include "native/ptx/wgmma_operands.hpp"
#include "native/ptx/wgmma_transposed.hpp"

namespace glm::ptx {

template <int32_t columns>
struct WgmmaF16;

template <int32_t columns>
struct WgmmaF16RegistersTransposed;

#define GLM_WGMMA_F16(...) \
  GLM_WGMMA(WgmmaF16, "k16.f32.f16.f16", ", 0, 0", __VA_ARGS__)
GLM_WGMMA_SIZES(GLM_WGMMA_F16)
#undef GLM_WGMMA_F16

#define GLM_WGMMA_F16_TRANSPOSED(...)                                  \
  GLM_WGMMA_TRANSPOSED(WgmmaF16RegistersTransposed, "k16.f32.f16.f16", \
                       __VA_ARGS__)
GLM_WGMMA_TRANSPOSED_SIZES(GLM_WGMMA_F16_TRANSPOSED)
#undef GLM_WGMMA_F16_TRANSPOSED

}
