#ifndef GLM_KERNELS_QUANTISE_HPP
#define GLM_KERNELS_QUANTISE_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void expect_quantise_shapes(const glm_quantise_args& args);
void quantise(const Context& context, const glm_quantise_args& args);

int64_t quantise_scratch_bytes(const glm_workspace_shape& shape);

}

#endif
