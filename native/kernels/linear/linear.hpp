#ifndef GLM_KERNELS_LINEAR_LINEAR_HPP
#define GLM_KERNELS_LINEAR_LINEAR_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void expect_linear_shapes(const glm_linear_args& args);
void linear(const Context& context, const glm_linear_args& args);
int64_t linear_scratch_bytes(const glm_workspace_shape& shape);

}

#endif
