#ifndef GLM_KERNELS_LOGITS_LOGITS_HPP
#define GLM_KERNELS_LOGITS_LOGITS_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void expect_logits_shapes(const glm_logits_args& args);
void logits(const Context& context, const glm_logits_args& args);
int64_t logits_scratch_bytes(const glm_workspace_shape& shape);

}

#endif
