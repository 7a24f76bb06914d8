#ifndef GLM_KERNELS_ADD_NORM_QUANTISE_HPP
#define GLM_KERNELS_ADD_NORM_QUANTISE_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void add_norm_quantise(const Context& context,
                       const glm_add_norm_quantise_args& args);

int64_t add_norm_quantise_scratch_bytes(const glm_workspace_shape& shape);

}

#endif
