#ifndef GLM_KERNELS_LINEAR_LINEAR_HPP
#define GLM_KERNELS_LINEAR_LINEAR_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void linear(const Context& context, const glm_linear_args& args);
}

#endif
