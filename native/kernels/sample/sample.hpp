#ifndef GLM_KERNELS_SAMPLE_HPP
#define GLM_KERNELS_SAMPLE_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void expect_sample_shapes(const glm_sample_args& args);
void sample(const Context& context, const glm_sample_args& args);

int64_t sample_scratch_bytes(const glm_workspace_shape& shape);

}

#endif
