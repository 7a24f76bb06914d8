#ifndef GLM_KERNELS_EMBED_HPP
#define GLM_KERNELS_EMBED_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void expect_embed_shapes(const glm_embed_args& args);
void embed(const Context& context, const glm_embed_args& args);

int64_t embed_scratch_bytes(const glm_workspace_shape& shape);

}

#endif
