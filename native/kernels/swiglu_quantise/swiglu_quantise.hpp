#ifndef GLM_KERNELS_SWIGLU_QUANTISE_HPP
#define GLM_KERNELS_SWIGLU_QUANTISE_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void expect_swiglu_quantise_shapes(const glm_swiglu_quantise_args& args);
void swiglu_quantise(const Context& context,
                     const glm_swiglu_quantise_args& args);

int64_t swiglu_quantise_scratch_bytes(const glm_workspace_shape& shape);

}

#endif
